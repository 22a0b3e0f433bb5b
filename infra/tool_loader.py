"""Load the tools that the settings and installed packages name."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import sys
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from domain.tools import ToolDefinitionError, Toolset, as_tool, marked_tool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from domain.tools import Tool

ENTRY_POINTS = "rejoinder.tools"
_VARIABLE = "REJOINDER_TOOLS"


class ToolLoadError(Exception):
    """A tool cannot be loaded: one line that names the entry and says what is wrong."""


def load_tools(entries: Sequence[str], default: Iterable[Tool] = ()) -> Toolset:
    """Return the tools of these entries, then those of the entry points ``rejoinder.tools``; `default` if none.

    An entry is ``path/to/file.py``, ``path/to/file.py:name``, ``module`` or ``module:name``; a module gives what its
    list ``tools`` holds, else its own public functions and @tools. The working directory is searched last for
    modules. Raises `ToolLoadError`, also for two tools of one name.
    """
    sources: list[tuple[str, Callable[[], object]]] = [
        (f"{_VARIABLE}: {name}", partial(_load, name)) for name in entries
    ]
    sources += [(f"entry point {point.name} = {point.value}", point.load) for point in _points()]
    origins: dict[str, str] = {}
    loaded: list[Tool] = []
    for origin, load in sources:
        for made in _tools_from(origin, load):
            if made.name in origins:
                raise ToolLoadError(f"{origin}: there is a tool named {made.name!r} already, from {origins[made.name]}")
            origins[made.name] = origin
            loaded.append(made)
    return Toolset(loaded or default)


def _points() -> list[Any]:
    return sorted(entry_points(group=ENTRY_POINTS), key=lambda point: (point.name, point.value))


def _tools_from(origin: str, load: Callable[[], object]) -> list[Tool]:
    try:
        return _tools_of(load())
    except ToolDefinitionError as exc:
        raise ToolLoadError(f"{origin}: {_one_line(exc)}") from exc
    except (Exception, SystemExit) as exc:  # a module of the user's may raise anything when it is imported
        raise ToolLoadError(f"{origin}: {type(exc).__name__}: {_one_line(exc)}") from exc


def _load(entry: str) -> object:
    place, _, name = entry.rpartition(":") if ":" in entry else (entry, "", "")
    module = _file_module(Path(place)) if place.endswith(".py") else _named_module(place)
    if not name:
        return module
    if not hasattr(module, name):
        raise ToolDefinitionError(f"{place} has no {name!r}")
    return getattr(module, name)


def _named_module(name: str) -> ModuleType:
    _search_last(Path.cwd())
    return importlib.import_module(name)


def _file_module(path: Path) -> ModuleType:
    """Import a file under a name of its own, once; its neighbours can be imported by it."""
    path = path.resolve()
    if not path.is_file():
        raise ToolDefinitionError(f"there is no file {path}")
    name = f"rejoinder_tools_{path.stem}_{hashlib.sha256(bytes(path)).hexdigest()[:12]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ToolDefinitionError(f"{path} is no Python module")
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


def _tools_of(loaded: object) -> list[Tool]:
    if isinstance(loaded, ModuleType):
        exported = getattr(loaded, "tools", None)
        if exported is None or inspect.isroutine(exported):
            exported = [thing for name, thing in vars(loaded).items() if _is_own_tool(loaded, name, thing)]
        loaded = exported
        if not loaded:
            raise ToolDefinitionError("it defines no tools: no list `tools`, no public function, no @tool")
    things = loaded if isinstance(loaded, list | tuple) else [loaded]
    return [as_tool(thing) for thing in dict.fromkeys(things)]  # a function may have two names


def _is_own_tool(module: ModuleType, name: str, thing: object) -> bool:
    if marked := marked_tool(thing):
        return bool(marked.function.__module__ == module.__name__)
    return inspect.isfunction(thing) and thing.__module__ == module.__name__ and not name.startswith("_")


def _one_line(exc: BaseException) -> str:
    return " ".join(str(exc).split())[:500]
