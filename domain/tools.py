"""Tools: functions that a model may call, run by our process, a person or a client, gated or not.

>>> @tool(gate="always")
... def send_email(to: str, body: str) -> str:
...     \"\"\"Send an email.\"\"\"
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, overload

from domain.errors import InvalidInput
from domain.tool_context import ToolContext, ToolError
from domain.tool_definition import Gate, Tool, ToolOptions, make_tool
from domain.tool_schema import ToolDefinitionError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Unpack

__all__ = [
    "Gate",
    "Tool",
    "ToolContext",
    "ToolDefinitionError",
    "ToolError",
    "ToolOptions",
    "Toolset",
    "as_tool",
    "marked_tool",
    "tool",
]

F = TypeVar("F", bound=Callable[..., Any])

_TOOL = "__rejoinder_tool__"


@overload
def tool(function: F, /) -> F: ...
@overload
def tool(**options: Unpack[ToolOptions]) -> Callable[[F], F]: ...
def tool(function: F | None = None, /, **options: Unpack[ToolOptions]) -> F | Callable[[F], F]:
    """Make a tool of a function, with or without `ToolOptions`; the function stays what it is and can be called.

    Its arguments need annotations that have a JSON Schema; one annotated `ToolContext` is given by the runner.
    Raises `ToolDefinitionError`.
    """

    def mark(function: F) -> F:
        setattr(function, _TOOL, make_tool(function, **options))
        return function

    return mark if function is None else mark(function)


def as_tool(thing: object, **options: Unpack[ToolOptions]) -> Tool:
    """Return the tool that `thing` is: a `Tool`, a function marked by `tool`, or a plain function (or bound method).

    Options are for the last, and for functions that cannot be marked. Raises `ToolDefinitionError`.
    """
    if not options and (marked := marked_tool(thing)):
        return marked
    return make_tool(thing, **options)


def marked_tool(thing: object) -> Tool | None:
    """Return the tool that `thing` is or was marked as by `tool`, None for anything else."""
    if isinstance(thing, Tool):
        return thing
    marked = getattr(thing, _TOOL, None)
    if not isinstance(marked, Tool) or not callable(thing):
        return None
    # a decorator above @tool copied the mark (`functools.wraps`): it is what runs
    return marked if marked.function is thing else replace(marked, function=thing)


class Toolset:
    """Tools by name, in the order given; two of one name are a `ToolDefinitionError`."""

    def __init__(self, tools: Iterable[object] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        for made in map(as_tool, tools):
            if made.name in self._tools:
                raise ToolDefinitionError(f"tool {made.name!r}: two tools have this name; rename one by name=")
            self._tools[made.name] = made

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    @property
    def names(self) -> tuple[str, ...]:
        """The names in order."""
        return tuple(self._tools)

    def get(self, name: str) -> Tool | None:
        """Return the tool of that name, None if there is none."""
        return self._tools.get(name)

    def select(self, names: Sequence[str] | None, *, field: str = "settings.tools") -> Toolset:
        """Return the tools of these names, all for None; raises `InvalidInput` on `field` for an unknown one."""
        if names is None:
            return self
        for index, name in enumerate(names):
            if name not in self._tools:
                raise InvalidInput(f"{field}.{index}", f"is no tool of this server, which has: {self._listed()}")
        return self.existing(names)

    def existing(self, names: Sequence[str] | None) -> Toolset:
        """Do as `select`, but leave out what is unknown (a tool that is gone since the settings were recorded)."""
        return self if names is None else Toolset(self._tools[name] for name in dict.fromkeys(names) if name in self)

    def definitions(self) -> list[dict[str, Any]]:
        """Return every tool in the format of OpenAI's chat completions."""
        return [made.definition() for made in self]

    def _listed(self) -> str:
        return ", ".join(self._tools) or "none"
