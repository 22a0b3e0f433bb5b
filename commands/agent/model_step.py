"""One model call of a turn: from its request to the decision that records the reply and the calls it proposes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from commands.agent.audit import CallAbout
from commands.agent.compaction import budget_for, make_room
from commands.agent.hook_run import HookRun, HookStopped
from commands.agent.live import LiveAt
from commands.agent.model import ModelError, ModelRequest
from commands.agent.model_call import call_model
from domain.compaction import exceeds
from domain.decisions import Reply
from domain.errors import Superseded
from domain.parts import text_of
from domain.proposals import propose
from domain.tokens import tokens_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from commands.agent.model import Delta, ModelReply
    from commands.agent.model_context import ModelContext
    from commands.agent.spending import Spending
    from commands.agent.surroundings import Decide, Surroundings
    from commands.session import Session
    from domain.conversation import Conversation
    from domain.conversation_state import OpenTurn
    from domain.decisions import ProposedCall
    from domain.events import TurnFailure
    from domain.hook_context import ProviderMessage
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
    budget = await budget_for(settings, surroundings)
    context.result_bytes = budget.result_bytes
    system_prompt = settings.get("system_prompt")

    async def newest() -> int:
        seq = await context.refresh()
        await context.prepare(system_prompt=system_prompt, model=model)
        return seq

    async def seen_by_hooks() -> list[ProviderMessage]:
        await newest()
        return context.messages(system_prompt=system_prompt, model=model)

    hooks = HookRun(session, surroundings, context, turn)
    try:
        injected = await hooks.before(model, seen_by_hooks)
    except HookStopped as stopped:
        return _failing(number, attempt, stopped.reason, detail=stopped.detail, compact=context.exceeded)
    context_seq = await newest()  # after the hooks: what has come while they ran is for the model to see too
    at = LiveAt(session.conversation_id, number, step, attempt, 1)

    def request_for(name: str) -> ModelRequest:
        messages = [*context.messages(system_prompt=system_prompt, model=name), *(one.message for one in injected)]
        return ModelRequest(name, messages, tools.definitions(), settings.get("model_params") or {})

    asked = surroundings.model_for(
        CallAbout(
            conversation_id=session.conversation_id,
            purpose="turn",
            turn=number,
            step=step,
            attempt=attempt,
            context_seq=context_seq,
            summary=context.summary,
            injected=injected,
        )
    )

    def show(delta: Delta) -> None:
        surroundings.live.publish(at, delta.kind, delta.text)

    def begin_again(_: int) -> None:  # its own number: after a cure the tries of a call begin anew
        nonlocal at
        at = at._replace(try_=at.try_ + 1)
        surroundings.live.restart(at)

    while True:
        surroundings.live.restart(at)
        try:
            reply = await call_model(
                [model, *(settings.get("fallback_models") or ())],
                asked,
                request_for,
                spending,
                on_delta=show,
                on_restart=begin_again,
            )
        except ModelError as error:
            if error.reason != "context_window":
                return _failing(number, attempt, error.reason, spending.all, compact=exceeds(budget, *context.size()))
            decided = await make_room(session, surroundings, context)
            if decided is not None:
                return _and_reports(decided, turn, spending.all)
            if not context.leave_out_more():
                return _failing(number, attempt, error.reason, spending.all, compact=budget.strategy != "none")
            begin_again(at.try_ + 1)
        else:
            break
    context.exceeded = exceeds(budget, *context.size(plus=_tokens_of(reply)))
    try:
        await hooks.after(reply)
    except HookStopped as stopped:
        return _failing(number, attempt, stopped.reason, spending.all, detail=stopped.detail, compact=context.exceeded)
    timeout_s = settings.get("approval_timeout_s", surroundings.approval_timeout_s)
    proposed = propose(reply.tool_requests, tools, approval_timeout_s=timeout_s)
    recorded = replace(_reply(reply, step, context_seq, proposed, spending), compact=context.exceeded)
    return lambda conversation, now: conversation.record_reply(number, attempt, recorded, now=now)


def failing(conversation: Conversation, reason: TurnFailure, *, detail: str | None, compact: bool) -> Decide:
    """Make the decision that ends the open turn as failed."""
    turn = open_turn(conversation)
    return _failing(turn.number, turn.attempt, reason, detail=detail, compact=compact)


def open_turn(conversation: Conversation) -> OpenTurn:
    """Return the open turn; `Superseded` when it has ended meanwhile."""
    if conversation.turn is None:
        raise Superseded("the turn has ended")
    return conversation.turn


def _and_reports(decided: Decide, turn: OpenTurn, usage: Sequence[Usage]) -> Decide:
    def decide(conversation: Conversation, now: datetime) -> None:
        decided(conversation, now)
        if usage:
            conversation.report_usage(turn, usage, now=now)

    return decide


def _failing(
    turn: int,
    attempt: int,
    reason: TurnFailure,
    usage: Sequence[Usage] | None = None,
    *,
    detail: str | None = None,
    compact: bool,
) -> Decide:
    return lambda conversation, now: conversation.fail_turn(
        turn, attempt, reason, now=now, detail=detail, usage=usage, compact=compact
    )


def _tokens_of(reply: ModelReply) -> int:
    arguments = [request.arguments for request in reply.tool_requests]
    return tokens_of([{"content": text_of(reply.content), "calls": arguments}])


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
