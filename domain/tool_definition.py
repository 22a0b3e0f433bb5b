"""What a tool is: a function with all that a model, a person and the runner need to know about it."""

from __future__ import annotations

import inspect
import logging
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from domain.tool_docstring import described
from domain.tool_schema import Answer, Arguments, ToolDefinitionError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from domain.events import Executor
    from domain.tool_context import ToolContext

Gate = Literal["never", "always"] | Callable[[dict[str, Any]], bool]
"""Whether a call waits for approval before it runs; a predicate gets the arguments as the function would."""

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_EXECUTORS = ("server", "human", "client")
_TEN_YEARS_S = 10 * 365 * 86_400
_logger = logging.getLogger(__name__)


class ToolOptions(TypedDict, total=False):
    """What `tool` takes; everything has a default.

    - `name`, `description`: instead of the function's name and docstring
    - `executor`: ``server`` (our process, the default), ``human`` or ``client`` (their answer is the result)
    - `gate`: approval before it runs: ``never`` (the default), ``always``, or a predicate on the arguments
    - `timeout_s`: of a run in our process; by default the conversation's, else 60
    - `approval_timeout_s`: of each question to a person or client; 0 = none; by default the conversation's
    - `rerun`: False = after a crash the call ends in an error instead of running a second time
    - `requires_user`: True = the call fails where no user but the system acts
    """

    name: str
    description: str
    executor: Executor
    gate: Gate
    timeout_s: float
    approval_timeout_s: float
    rerun: bool
    requires_user: bool


@dataclass(frozen=True, slots=True, eq=False)
class Tool:
    """A tool, made by `make_tool`; `answer` is None for server tools."""

    name: str
    description: str
    arguments: Arguments
    answer: Answer | None
    function: Callable[..., Any]
    executor: Executor = "server"
    gate: Gate = "never"
    timeout_s: float | None = None
    approval_timeout_s: float | None = None
    rerun: bool = True
    requires_user: bool = False

    @property
    def response_schema(self) -> dict[str, Any] | None:
        """The JSON Schema of the answer of a person or client; None: a server tool, or anything goes."""
        return self.answer.schema if self.answer else None

    @property
    def is_async(self) -> bool:
        """Whether the function is a coroutine function; others block, and run in threads of their own."""
        return inspect.iscoroutinefunction(self.function)

    def definition(self) -> dict[str, Any]:
        """Return the tool in the format of OpenAI's chat completions."""
        return {
            "type": "function",
            "function": {"name": self.name, "description": self.description, "parameters": self.arguments.schema},
        }

    def validate_args(self, raw: Any) -> dict[str, Any]:
        """Return `raw` as JSON that fits the schema of the arguments; raises `InvalidInput` naming the field."""
        return self.arguments.validate(raw)

    def validate_answer(self, answer: Any) -> Any:
        """Return a person's or client's answer as JSON that fits the return annotation; raises `InvalidInput`."""
        return self.answer.validate(answer) if self.answer else answer

    def gated_for(self, args: Mapping[str, Any]) -> bool:
        """Say whether a call with these arguments waits for approval; a predicate that raises counts as yes."""
        if not callable(self.gate):
            return self.gate == "always"
        try:
            return bool(self.gate(self.arguments.bind(args)))
        except Exception:
            _logger.exception("the gate of tool %s failed, so the call waits for approval", self.name)
            return True

    def call(self, values: Mapping[str, Any], context: ToolContext) -> Any:
        """Call the function with bound arguments (`Arguments.bind`); returns what it returns, perhaps an awaitable."""
        given = {self.arguments.context_name: context} if self.arguments.context_name else {}
        return self.function(**values, **given)


def make_tool(
    function: object,
    *,
    name: str | None = None,
    description: str | None = None,
    executor: Executor = "server",
    gate: Gate = "never",
    timeout_s: float | None = None,
    approval_timeout_s: float | None = None,
    rerun: bool = True,
    requires_user: bool = False,
) -> Tool:
    """Make a tool of a function or bound method; the options are those of `ToolOptions`.

    Raises `ToolDefinitionError`.
    """
    if not inspect.isroutine(function):
        raise ToolDefinitionError(f"{type(function).__name__!r} object: a tool is a function or a bound method")
    name = function.__name__ if name is None else name
    text, argument_texts = described(function.__doc__)
    problem = (
        _name_problem(name)
        or _function_problem(function)
        or _option_problem(executor, gate, rerun, requires_user, timeout_s)
        or _gate_problem(gate)
        or _seconds_problem("timeout_s", timeout_s, zero=False)
        or _seconds_problem("approval_timeout_s", approval_timeout_s, zero=True)
    )
    if problem:
        raise ToolDefinitionError(f"tool {name!r}: {problem}")
    return Tool(
        name=name,
        description=text if description is None else description,
        arguments=Arguments(name, function, argument_texts),
        answer=None if executor == "server" else Answer(name, function),
        function=function,
        executor=executor,
        gate=gate,
        timeout_s=timeout_s,
        approval_timeout_s=approval_timeout_s,
        rerun=rerun,
        requires_user=requires_user,
    )


def _name_problem(name: str) -> str | None:
    return None if _NAME.fullmatch(name) else "a name has 1 to 64 of A-Z a-z 0-9 _ and -, give one by name="


def _function_problem(function: Callable[..., Any]) -> str | None:
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        return "a tool returns one value and does not yield"
    return None


def _option_problem(
    executor: str, gate: object, rerun: bool, requires_user: bool, timeout_s: float | None
) -> str | None:
    if executor not in _EXECUTORS:
        return "executor is one of server, human, client"
    if executor == "human" and gate != "never":
        return "a human tool cannot be gated: the person who answers decides"
    if executor != "server" and (not rerun or requires_user or timeout_s is not None):
        return "rerun, requires_user and timeout_s are for server tools (a question's deadline is approval_timeout_s)"
    return None


def _gate_problem(gate: object) -> str | None:
    if gate in ("never", "always"):
        return None
    if not callable(gate) or inspect.iscoroutinefunction(gate):
        return "gate is never, always, or a predicate (no coroutine function) on the arguments"
    try:
        inspect.signature(gate).bind({})
    except (TypeError, ValueError):
        return "the gate's predicate takes one argument: a dict of the tool's arguments"
    return None


def _seconds_problem(option: str, seconds: float | None, *, zero: bool) -> str | None:
    if seconds is None or (zero and seconds == 0):
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not math.isfinite(seconds):
        return f"{option} is a number of seconds"
    return None if 0 < seconds <= _TEN_YEARS_S else f"{option} is {'0' if zero else 'more than 0'} to ten years"
