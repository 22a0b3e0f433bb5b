"""One model call of a turn: from its request to the decision that records the reply and the calls it proposes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from commands.agent.live import LiveAt
from commands.agent.model import ModelError, ModelRequest
from commands.agent.model_call import call_model
from domain.decisions import Reply
from domain.errors import Superseded
from domain.proposals import propose

if TYPE_CHECKING:
    from collections.abc import Sequence

    from commands.agent.model import Delta, ModelReply
    from commands.agent.model_context import ModelContext
    from commands.agent.spending import Spending
    from commands.agent.surroundings import Decide, Surroundings
    from commands.session import Session
    from domain.conversation import Conversation
    from domain.conversation_state import OpenTurn
    from domain.decisions import ProposedCall
    from domain.events import TurnFailure
    from domain.usage import Usage


async def model_step(session: Session, surroundings: Surroundings, context: ModelContext, spending: Spending) -> Decide:
    """Call the model for the open turn's next step, showing what it says as it says it.

    What it uses is in `spending`, also when this is cancelled. Returns the decision that records the reply, or the one
    that ends the turn as failed.
    """
    turn = open_turn(session.conversation)
    settings, step, attempt, number = turn.settings, turn.step + 1, turn.attempt, turn.number
    tools = surroundings.toolset.existing(settings.get("tools"))
    model = settings.get("model") or surroundings.default_model
    context_seq = await context.refresh()
    at = LiveAt(session.conversation_id, number, step, attempt, 1)

    def request_for(name: str) -> ModelRequest:
        messages = context.messages(system_prompt=settings.get("system_prompt"), model=name)
        return ModelRequest(name, messages, tools.definitions(), settings.get("model_params") or {})

    def show(delta: Delta) -> None:
        surroundings.live.publish(at, delta.kind, delta.text)

    def begin_again(try_: int) -> None:
        nonlocal at
        at = at._replace(try_=try_)
        surroundings.live.restart(at)

    surroundings.live.restart(at)
    try:
        reply = await call_model(
            [model, *(settings.get("fallback_models") or ())],
            surroundings.model,
            request_for,
            spending,
            on_delta=show,
            on_restart=begin_again,
        )
    except ModelError as error:
        return _failing(number, attempt, error.reason, spending.all)
    timeout_s = settings.get("approval_timeout_s", surroundings.approval_timeout_s)
    recorded = _reply(
        reply, step, context_seq, propose(reply.tool_requests, tools, approval_timeout_s=timeout_s), spending
    )
    return lambda conversation, now: conversation.record_reply(number, attempt, recorded, now=now)


def failing(conversation: Conversation, reason: TurnFailure) -> Decide:
    """Make the decision that ends the open turn as failed."""
    turn = open_turn(conversation)
    return _failing(turn.number, turn.attempt, reason)


def open_turn(conversation: Conversation) -> OpenTurn:
    """Return the open turn; `Superseded` when it has ended meanwhile."""
    if conversation.turn is None:
        raise Superseded("the turn has ended")
    return conversation.turn


def _failing(turn: int, attempt: int, reason: TurnFailure, usage: Sequence[Usage] | None = None) -> Decide:
    return lambda conversation, now: conversation.fail_turn(turn, attempt, reason, now=now, usage=usage)


def _reply(
    reply: ModelReply, step: int, context_seq: int, calls: tuple[ProposedCall, ...], spending: Spending
) -> Reply:
    return Reply(
        step=step,
        content=reply.content,
        model=reply.model,
        finish_reason=reply.finish_reason,
        context_seq=context_seq,
        calls=calls,
        usage=spending.of_model,
        usage_of_others=spending.of_others,
        latency_ms=reply.latency_ms,
    )
