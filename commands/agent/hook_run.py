"""Running hooks around a model call: what they add, and how each way in which one can go wrong ends the turn."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, NamedTuple

from commands.agent.user_run import called, ended_within
from domain.events import TurnStarted
from domain.hook_context import context_message
from domain.hooks import Halt, HookContext, RequestedCall, Said
from domain.parts import text_of
from domain.text import clean
from domain.tokens import tokens_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from commands.agent.model import ModelReply
    from commands.agent.model_context import ModelContext
    from commands.agent.surroundings import Surroundings
    from commands.session import Session
    from domain.conversation_state import OpenTurn
    from domain.events import TurnFailure
    from domain.hook_context import ProviderMessage
    from domain.hooks import Hook

logger = logging.getLogger(__name__)


class HookStopped(Exception):
    """A hook ends the turn; `detail`, which names it, is for people to see."""

    def __init__(self, reason: TurnFailure, detail: str) -> None:
        super().__init__(detail)
        self.reason, self.detail = reason, detail


class Injected(NamedTuple):
    """What a hook adds to a request, and about how many tokens that has."""

    hook: str
    message: ProviderMessage
    tokens: int


class HookRun:
    """The hooks of one model call of the open turn, which run one after another, in order."""

    def __init__(self, session: Session, surroundings: Surroundings, context: ModelContext, turn: OpenTurn) -> None:
        self._session, self._surroundings, self._context, self._turn = session, surroundings, context, turn
        names: Sequence[str] | None = turn.settings.get("hooks")
        self._missing = surroundings.hooks.missing(names)
        self._before = surroundings.hooks.of("before_model", names)
        self._after = surroundings.hooks.of("after_model", names)
        self._shown: HookContext | None = None

    async def before(self, model: str, request: Callable[[], Awaitable[Sequence[ProviderMessage]]]) -> list[Injected]:
        """Return what hooks add to this request. Raises `HookStopped`."""
        if self._missing is not None:
            raise HookStopped("hook_failed", f"The hook {self._missing} is not on this server.")
        if not (self._before or self._after):
            return []
        self._shown = await self._look(model, await request())
        injected: list[Injected] = []
        for hook in self._before:
            text = await _run(hook, self._shown)
            if text is None or text == "":
                continue
            if not isinstance(text, str):
                raise HookStopped("hook_failed", f"The hook {hook.name} returned {type(text).__name__}, and no text.")
            message = context_message(clean(text))
            tokens = tokens_of([message])
            if tokens > hook.reserve_tokens:
                told = f"The hook {hook.name} added about {tokens:,} tokens: its reserve has {hook.reserve_tokens:,}."
                logger.error(told, extra={"action": "hook_over_reserve", "hook": hook.name})
                raise HookStopped("hook_failed", told)
            injected.append(Injected(hook.name, message, tokens))
        return injected

    async def after(self, reply: ModelReply) -> None:
        """Show hooks the reply to the request that `before` was given. Raises `HookStopped`."""
        if not self._after:
            return
        calls = tuple(RequestedCall(request.name, request.arguments) for request in reply.tool_requests)
        text = text_of(reply.content)
        said = Said(text, calls, reply.model, reply.finish_reason, reply.usage, reply.latency_ms)
        for hook in self._after:
            await _run(hook, self._shown, said)

    async def _look(self, model: str, request: Sequence[ProviderMessage]) -> HookContext:
        conversation, turn = self._session.conversation, self._turn
        try:
            scope = await self._surroundings.scopes.resolve(conversation.tenant, turn.actor)
        except Exception as error:  # somebody else's code, as a hook is
            logger.exception("nobody can say what the actor may do", extra={"action": "scope_failed"})
            said = f"The server could not look up for hooks what the user may do ({type(error).__name__})."
            raise HookStopped("hook_failed", said) from error
        answers = next(
            (event.answers for event in reversed(self._session.newest) if isinstance(event, TurnStarted)), []
        )
        return HookContext(
            conversation_id=conversation.id,
            turn=turn.number,
            step=turn.step + 1,
            model=model,
            scope=scope,
            metadata=conversation.metadata | await self._context.message_metadata(answers),
            request=request,
        )


async def _run(hook: Hook, *given: Any) -> Any:
    task = await ended_within(hook.timeout_s, _outcome(hook, given), name=f"hook {hook.name}")
    if task is None:
        raise HookStopped("hook_failed", f"The hook {hook.name} was not done after {hook.timeout_s:g} s.")
    if task.cancelled():
        raise HookStopped("hook_failed", f"The hook {hook.name} cancelled itself.")
    return task.result()


async def _outcome(hook: Hook, given: tuple[Any, ...]) -> Any:
    try:
        return await called(lambda: hook.function(*given), is_async=hook.is_async, name=f"hook-{hook.name}")
    except Halt as halt:
        logger.info("a hook halted the turn", extra={"action": "turn_halted", "hook": hook.name})
        raise HookStopped("halted", str(halt) or f"The hook {hook.name} halted the turn.") from halt
    except (Exception, SystemExit, KeyboardInterrupt) as error:  # the last two would end the loop
        logger.exception("the hook %s failed", hook.name, extra={"action": "hook_failed", "hook": hook.name})
        raise HookStopped("hook_failed", f"The hook {hook.name} failed ({type(error).__name__}).") from error
