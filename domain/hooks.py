"""Hooks: functions that run before and after the model calls of a turn, to add what it should know, or to stop it.

>>> @before_model(reserve_tokens=500)
... async def account(ctx: HookContext) -> str | None:
...     \"\"\"Tell the model what the customer has bought.\"\"\"
...     return await purchases_of(ctx.scope.user)
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar, overload

from domain.errors import InvalidInput
from domain.hook_context import Halt, HookContext, RequestedCall, Said

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Unpack

__all__ = [
    "NO_HOOKS",
    "Halt",
    "Hook",
    "HookContext",
    "HookDefinitionError",
    "Hooks",
    "RequestedCall",
    "Said",
    "after_model",
    "before_audit",
    "before_model",
    "marked_hook",
]

Moment = Literal["before_model", "after_model", "before_audit"]
F = TypeVar("F", bound=Callable[..., Any])

RESERVE_TOKENS = 1_000
TIMEOUT_S = 10.0

_HOOK = "__rejoinder_hook__"
_GIVEN: dict[Moment, int] = {"before_model": 1, "after_model": 2, "before_audit": 1}
_CALLED_WITH: dict[Moment, str] = {
    "before_model": "the context",
    "after_model": "the context and what the model said",
    "before_audit": "a message",
}
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class HookDefinitionError(Exception):
    """A hook cannot be made as it was declared; the message says why."""


class HookOptions(TypedDict, total=False):
    """What both decorators take: `name` instead of the function's, `timeout_s` of a run (10 s)."""

    name: str
    timeout_s: float


class InjectingOptions(HookOptions, total=False):
    """What `before_model` takes too: the most tokens, as they are estimated, of what it returns (1,000)."""

    reserve_tokens: int


@dataclass(frozen=True, slots=True, eq=False)
class Hook:
    """A hook, made by `before_model` or `after_model`."""

    name: str
    moment: Moment
    function: Callable[..., Any]
    timeout_s: float = TIMEOUT_S
    reserve_tokens: int = RESERVE_TOKENS

    @property
    def is_async(self) -> bool:
        """Whether the function is a coroutine function; others may block, and run in threads of their own."""
        return inspect.iscoroutinefunction(self.function)


@overload
def before_model(function: F, /) -> F: ...
@overload
def before_model(**options: Unpack[InjectingOptions]) -> Callable[[F], F]: ...
def before_model(function: F | None = None, /, **options: Unpack[InjectingOptions]) -> F | Callable[[F], F]:
    """Have a function run before each model call of a turn: it gets a `HookContext` and returns text, or None.

    The text is the last that the model sees of that call, and is nowhere in the log. It may raise `Halt`.
    Raises `HookDefinitionError`.
    """
    return _marking("before_model", function, options)


@overload
def after_model(function: F, /) -> F: ...
@overload
def after_model(**options: Unpack[HookOptions]) -> Callable[[F], F]: ...
def after_model(function: F | None = None, /, **options: Unpack[HookOptions]) -> F | Callable[[F], F]:
    """Have a function run after each model call of a turn, before its reply is recorded.

    It gets a `HookContext` and what was `Said`, and may raise `Halt`: then the reply is not recorded, though people may
    have read it as it was streamed. Raises `HookDefinitionError`.
    """
    return _marking("after_model", function, options)


@overload
def before_audit(function: F, /) -> F: ...
@overload
def before_audit(**options: Unpack[HookOptions]) -> Callable[[F], F]: ...
def before_audit(function: F | None = None, /, **options: Unpack[HookOptions]) -> F | Callable[[F], F]:
    """Have a plain function redact what the audit keeps: it gets each message of a request, and returns what to keep.

    The message is a copy, in the format of OpenAI's chat completions; `timeout_s` is for all of a request. It runs for
    every conversation, whatever hooks that names. Raises `HookDefinitionError`.
    """
    return _marking("before_audit", function, options)


def _marking(moment: Moment, function: F | None, options: Any) -> F | Callable[[F], F]:
    def mark(function: F) -> F:
        setattr(function, _HOOK, _made(moment, function, **options))
        return function

    return mark if function is None else mark(function)


def marked_hook(thing: object) -> Hook | None:
    """Return the hook that `thing` is or was marked as, None for anything else."""
    if isinstance(thing, Hook):
        return thing
    marked = getattr(thing, _HOOK, None)
    if not isinstance(marked, Hook) or not callable(thing):
        return None
    # a decorator above ours copied the mark (`functools.wraps`): it is what runs
    return marked if marked.function is thing else replace(marked, function=thing)


def _made(moment: Moment, function: Callable[..., Any], *, name: str | None = None, **options: Any) -> Hook:
    if not inspect.isroutine(function):
        raise HookDefinitionError(f"{function!r} is no function")
    hook = Hook(function.__name__ if name is None else name, moment, function, **options)
    if not _NAME.fullmatch(hook.name):
        raise HookDefinitionError(f"hook {hook.name!r}: a name has 1 to 64 letters, digits, _ and -: give one by name=")
    if not 0 < hook.timeout_s < math.inf:
        raise HookDefinitionError(f"hook {hook.name!r}: timeout_s is a number of seconds above 0")
    if hook.reserve_tokens < 1:
        raise HookDefinitionError(f"hook {hook.name!r}: reserve_tokens is a number of tokens above 0")
    try:
        inspect.signature(function).bind(*[None] * _GIVEN[moment])
    except TypeError:
        given = _CALLED_WITH[moment]
        raise HookDefinitionError(f"hook {hook.name!r}: a {moment} hook is called with {given}") from None
    if moment == "before_audit" and hook.is_async:
        raise HookDefinitionError(f"hook {hook.name!r}: a before_audit hook is a plain function, with no async")
    return hook


class Hooks:
    """Hooks by name, in the order in which they run; two of one name are a `HookDefinitionError`."""

    def __init__(self, hooks: Iterable[Hook] = ()) -> None:
        self._hooks: dict[str, Hook] = {}
        for hook in hooks:
            if hook.name in self._hooks:
                raise HookDefinitionError(f"hook {hook.name!r}: two hooks have this name; rename one by name=")
            self._hooks[hook.name] = hook

    @property
    def names(self) -> tuple[str, ...]:
        """The names in order."""
        return tuple(self._hooks)

    def check(self, names: Sequence[str] | None) -> None:
        """Raise `InvalidInput` on ``settings.hooks`` for a name that is none of these."""
        for index, name in enumerate(names or ()):
            if name not in self._hooks:
                listed = ", ".join(self._hooks) or "none"
                raise InvalidInput(f"settings.hooks.{index}", f"is no hook of this server, which has: {listed}")

    def missing(self, names: Sequence[str] | None) -> str | None:
        """Return the first of these names that is gone since it was recorded: what it would say is not known."""
        return next((name for name in names or () if name not in self._hooks), None)

    def of(self, moment: Moment, names: Sequence[str] | None) -> list[Hook]:
        """Return the hooks of these names, all for None, that run at that moment."""
        chosen = self._hooks if names is None else [name for name in dict.fromkeys(names) if name in self._hooks]
        return [hook for name in chosen if (hook := self._hooks[name]).moment == moment]

    def reserve(self, names: Sequence[str] | None) -> int:
        """Return the most tokens that hooks of these names add to a request."""
        return sum(hook.reserve_tokens for hook in self.of("before_model", names))


NO_HOOKS = Hooks()
