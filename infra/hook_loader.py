"""Load the hooks that the settings and installed packages name."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING

from domain.hooks import Hook, HookDefinitionError, Hooks, marked_hook
from infra.user_code import Kind, load

if TYPE_CHECKING:
    from collections.abc import Sequence


MARKS = "@before_model, @after_model, @before_audit"


def load_hooks(entries: Sequence[str]) -> Hooks:
    """Return the hooks of these entries, then those of the entry points ``rejoinder.hooks``: so they run.

    An entry is ``path/to/file.py``, ``path/to/file.py:name``, ``module`` or ``module:name``; a module gives what its
    list ``hooks`` holds, else the hooks that it defines. Raises `LoadError`, also for two hooks of one name.
    """
    return Hooks(load(HOOKS, entries))


def _hooks_of(loaded: object) -> list[Hook]:
    if isinstance(loaded, ModuleType):
        exported = getattr(loaded, "hooks", None)
        if not isinstance(exported, list | tuple):  # who imports our module of that name has it too
            exported = [thing for thing in vars(loaded).values() if _is_own(loaded, thing)]
        loaded = exported
        if not loaded:
            raise HookDefinitionError(f"it defines no hooks: no list `hooks`, and none of {MARKS}")
    found: dict[int, Hook] = {}  # one may have two names
    for thing in loaded if isinstance(loaded, list | tuple) else [loaded]:
        hook = marked_hook(thing)
        if hook is None:
            raise HookDefinitionError(f"{thing!r} is no hook: mark it with one of {MARKS}")
        found[id(thing)] = hook
    return list(found.values())


def _is_own(module: ModuleType, thing: object) -> bool:
    hook = marked_hook(thing)
    return hook is not None and hook.function.__module__ == module.__name__


HOOKS = Kind(
    plural="hooks",
    noun="hook",
    complaint=HookDefinitionError,
    read=_hooks_of,
)
