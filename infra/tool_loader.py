"""Load the tools that the settings and installed packages name."""

from __future__ import annotations

import inspect
from types import ModuleType
from typing import TYPE_CHECKING

from domain.tools import Tool, ToolDefinitionError, Toolset, as_tool, marked_tool
from infra.user_code import Kind, load

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def load_tools(entries: Sequence[str], default: Iterable[Tool] = ()) -> Toolset:
    """Return the tools of these entries, then those of the entry points ``rejoinder.tools``; `default` if none.

    An entry is ``path/to/file.py``, ``path/to/file.py:name``, ``module`` or ``module:name``; a module gives what its
    list ``tools`` holds, else its own public functions and @tools. Raises `LoadError`, also for two tools of one name.
    """
    return Toolset(load(TOOLS, entries) or default)


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


TOOLS = Kind(
    plural="tools",
    noun="tool",
    complaint=ToolDefinitionError,
    read=_tools_of,
)
