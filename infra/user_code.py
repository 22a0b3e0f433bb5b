"""Load what settings and installed packages name of a user's own: files, modules, names in them, entry points."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from infra.settings import variable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from types import ModuleType


class LoadError(Exception):
    """Something of a user's cannot be loaded: one line that names the entry and says what is wrong."""


class Named(Protocol):
    """What there may be one of under a name."""

    @property
    def name(self) -> str:
        """The name."""
        ...


Thing = TypeVar("Thing", bound=Named)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind(Generic[Thing]):
    """A kind of thing that users bring along.

    `read` makes the things of a module, or of a value in one; what it raises as a `complaint` is for the user's eyes.
    """

    plural: str
    """Names the setting that lists them, and the group of their entry points."""
    noun: str
    complaint: type[Exception]
    read: Callable[[object], Iterable[Thing]]
    taken: Mapping[str, str] = field(default_factory=dict)
    """Names that are taken already → by whom."""


def load(kind: Kind[Thing], entries: Sequence[str]) -> list[Thing]:
    """Return the things of these entries, then those of the entry points, in order.

    An entry is ``path/to/file.py``, ``path/to/file.py:name``, ``module`` or ``module:name``. The working directory is
    searched last for modules. Raises `LoadError`, also for two things of one name.
    """
    sources: list[tuple[str, Callable[[], object]]] = [
        (f"{variable(kind.plural)}: {entry}", partial(_named, kind, entry)) for entry in entries
    ]
    sources += [(f"entry point {point.name} = {point.value}", point.load) for point in _points(kind)]
    origins = dict(kind.taken)
    loaded: list[Thing] = []
    for origin, source in sources:
        for thing in _things_of(kind, origin, source):
            if thing.name in origins:
                raise LoadError(
                    f"{origin}: there is a {kind.noun} named {thing.name!r} already, from {origins[thing.name]}"
                )
            origins[thing.name] = origin
            loaded.append(thing)
    return loaded


def _points(kind: Kind[Any]) -> list[Any]:
    return sorted(entry_points(group=f"rejoinder.{kind.plural}"), key=lambda point: (point.name, point.value))


def _things_of(kind: Kind[Thing], origin: str, source: Callable[[], object]) -> list[Thing]:
    try:
        return list(kind.read(source()))
    except kind.complaint as exc:
        raise LoadError(f"{origin}: {_one_line(exc)}") from exc
    except (Exception, SystemExit) as exc:  # a module of the user's may raise anything when it is imported
        raise LoadError(f"{origin}: {type(exc).__name__}: {_one_line(exc)}") from exc


def _named(kind: Kind[Thing], entry: str) -> object:
    place, _, name = entry.rpartition(":") if ":" in entry else (entry, "", "")
    module = _file_module(kind, Path(place)) if place.endswith(".py") else _named_module(place)
    if not name:
        return module
    if not hasattr(module, name):
        raise kind.complaint(f"{place} has no {name!r}")
    return getattr(module, name)


def _named_module(name: str) -> ModuleType:
    _search_last(Path.cwd())
    return importlib.import_module(name)


def _file_module(kind: Kind[Thing], path: Path) -> ModuleType:
    """Import a file under a name of its own, once; its neighbours can be imported by it."""
    path = path.resolve()
    if not path.is_file():
        raise kind.complaint(f"there is no file {path}")
    name = f"rejoinder_user_{path.stem}_{hashlib.sha256(bytes(path)).hexdigest()[:12]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise kind.complaint(f"{path} is no Python module")
    _search_last(path.parent)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pydantic look there for a class's module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _search_last(directory: Path) -> None:
    if str(directory) not in sys.path:
        sys.path.append(str(directory))


def _one_line(exc: BaseException) -> str:
    return " ".join(str(exc).split())[:500]
