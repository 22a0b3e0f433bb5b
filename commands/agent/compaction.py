"""Compacting a conversation: its older part is summarised into the sibling stream, and nothing else changes."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from commands.agent.append_queue import out_of_reach
from commands.agent.audit import CallAbout
from commands.agent.model import ModelError, ModelRequest
from commands.agent.model_call import CUT_OFF, call_model
from commands.agent.spending import Spending
from commands.summaries import revived, summary_state
from domain.compaction import WINDOW_SHARE, budget_of, cut
from domain.errors import ConversationNotFound
from domain.event_store import StoreError, StreamDeleted, StreamMoved
from domain.events import TurnResumed
from domain.parts import text_of
from domain.scope import SYSTEM
from domain.summaries import event
from domain.summarising import Refused, llm_content, request_messages, window_content
from domain.summary_events import SUMMARY_VERSION, SummaryFailed, SummaryRecorded
from domain.wire import encode, summary_stream_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any
    from uuid import UUID

    from commands.agent.model_context import ModelContext
    from commands.agent.surroundings import Decide, Surroundings
    from commands.session import Session
    from domain.compaction import Budget, Cut
    from domain.event_envelope import ConversationEvent
    from domain.summaries import SummaryState

logger = logging.getLogger(__name__)

LEAST_READ = 500
"""Tokens: a summariser that refuses a part of no more than this for its length is not asked with less."""


async def budget_for(settings: Mapping[str, Any], surroundings: Surroundings) -> Budget:
    """Return the budget of a conversation with these settings, without what its hooks may add (half of it at most)."""
    window = await surroundings.window_of(settings.get("model") or surroundings.default_model)
    budget = budget_of(settings, window)
    reserved = surroundings.hooks.reserve(settings.get("hooks"))
    return replace(budget, tokens=max(budget.tokens - reserved, budget.tokens // 2))


async def compact(conversation_id: UUID, surroundings: Surroundings) -> None:
    """Summarise until the conversation is within its budget, if it is not or somebody asked for it.

    Raises `ModelError`, `Refused`, `ConversationNotFound`, `UnknownEventType`, `StoreError`.
    """
    while await compact_once(conversation_id, surroundings) is not None:
        pass


async def compact_once(
    conversation_id: UUID, surroundings: Surroundings, *, refused_tokens: int | None = None
) -> int | None:
    """Summarise one part, and return up to which seq; None where nothing is owed or can be summarised.

    `refused_tokens` is the size of a request that a model has refused for its length: there must be less, whatever the
    budget. Who records or revokes a summary meanwhile wins: then it is judged anew. Raises as `compact` does.
    """
    conversations = surroundings.conversations
    too_many: int | None = None
    while True:
        state, events = await revived(conversations.store, conversation_id)
        conversation = (await conversations.load(conversation_id)).conversation
        if conversation.ended or conversation.copying or not events:
            return None
        settings = conversation.turn.settings if conversation.turn and refused_tokens else conversation.settings
        budget = await budget_for(settings, surroundings)
        if budget.strategy == "none":
            return None
        own = settings.get("model") or surroundings.default_model
        summariser = budget.model or surroundings.compaction_model or own
        most = budget.tokens
        if window := await surroundings.window_of(summariser):
            most = int(window * WINDOW_SHARE)
        if refused_tokens is not None:
            budget = replace(budget, keep_recent=min(budget.keep_recent, refused_tokens // 4))
            most = min(most, refused_tokens // 2)
        if too_many is not None:
            most = min(most, too_many // 2)
        part = await asyncio.to_thread(
            cut,
            state.latest,
            events,
            budget,
            system_prompt=settings.get("system_prompt"),
            model=own,
            asked=state.requested or refused_tokens is not None,
            most_tokens=most,
        )
        if part is None:
            return None
        spending = Spending()
        try:
            recorded = await _summary(conversation_id, surroundings, part, budget, summariser, most, spending)
        except BaseException as error:
            await _report(surroundings, state, conversation_id, spending)
            if not _is_too_long(error) or most <= LEAST_READ:
                raise
            too_many = min(most, part.tokens)
            continue
        if await _append(surroundings, state, recorded):
            logger.info("summarised up to event %d", part.to_seq, extra={"action": "conversation_compacted"})
            return part.to_seq
        await _report(surroundings, state, conversation_id, spending)


async def make_room(session: Session, surroundings: Surroundings, context: ModelContext) -> Decide | None:
    """Summarise what comes before the open turn, whose request was refused for its length; once in each turn.

    Returns the decision by which the turn goes on with the new summary, None where there is none.
    """
    turn = session.conversation.turn
    resumed = (event for event in session.newest if isinstance(event, TurnResumed) and event.summary_to_seq is not None)
    if turn is None or any(event.turn == turn.number for event in resumed):
        return None
    tokens, _ = context.size()
    to_seq: int | None = None
    try:
        to_seq = await compact_once(session.conversation_id, surroundings, refused_tokens=tokens)
    except (ModelError, Refused) as error:
        logger.warning("a long conversation was not compacted: %s", error, extra={"action": "compaction_failed"})
    if to_seq is None:  # perhaps one was made since the turn began
        to_seq = (await summary_state(surroundings.conversations.store, session.conversation_id)).to_seq
    if to_seq is None or to_seq <= (turn.summary_to_seq or 0):
        return None
    number, attempt = turn.number, turn.attempt
    return lambda c, now: c.resume_turn(number, attempt, now=now, summary_to_seq=to_seq)


async def _summary(
    conversation_id: UUID,
    surroundings: Surroundings,
    part: Cut,
    budget: Budget,
    summariser: str,
    most: int,
    spending: Spending,
) -> SummaryRecorded:
    model: str | None = None
    if budget.strategy == "window":
        content = window_content(part)
    else:
        messages = await asyncio.to_thread(request_messages, part, most)
        request = ModelRequest(summariser, messages, params={"max_tokens": budget.summary_tokens})
        about = CallAbout(conversation_id=conversation_id, purpose="compaction", summary=part.based_on)
        reply = await call_model(
            [summariser],
            surroundings.model_for(about),
            lambda name: request,
            spending,
            on_delta=lambda delta: None,
            on_restart=lambda try_: None,
            whole=False,
        )
        model, content = reply.model, llm_content(part, text_of(reply.content), cut_off=reply.finish_reason == CUT_OFF)
    recorded = event(
        SummaryRecorded,
        conversation_id,
        now=surroundings.conversations.clock.now(),
        actor=SYSTEM,
        from_seq=part.from_seq,
        to_seq=part.to_seq,
        content=content,
        version=SUMMARY_VERSION,
        strategy=budget.strategy,
        model=model,
        usage=spending.of_model,
        tokens_before=part.tokens_before,
        based_on=part.based_on.to_seq if part.based_on else None,
        carried=part.carried,
        context_seq=part.context_seq,
        resources=part.resources,
    )
    assert isinstance(recorded, SummaryRecorded)
    return recorded


def _is_too_long(error: BaseException) -> bool:
    return isinstance(error, ModelError) and error.reason == "context_window"


async def _report(surroundings: Surroundings, judged: SummaryState, conversation_id: UUID, spending: Spending) -> None:
    """Record what a summary used that came to nothing."""
    if spending.all:
        now = surroundings.conversations.clock.now()
        await _append(
            surroundings, judged, event(SummaryFailed, conversation_id, now=now, actor=SYSTEM, usage=spending.all)
        )


async def _append(surroundings: Surroundings, judged: SummaryState, recorded: ConversationEvent) -> bool:
    """Append to the stream that a summary was judged by; False if another one was recorded or revoked meanwhile.

    That one failed may be told at any time.
    """
    store, stream = surroundings.conversations.store, summary_stream_of(recorded.originator_id)
    record, seq = encode(recorded), judged.seq
    while True:
        try:
            await store.append(stream, [record], seq)
        except StreamMoved:
            state = await summary_state(store, recorded.originator_id)
            if state.changed != judged.changed and not isinstance(recorded, SummaryFailed):
                logger.info("another summary was first", extra={"action": "summary_superseded"})
                return False
            seq = state.seq  # requests alone came between, which this answers
        except StreamDeleted as error:
            raise ConversationNotFound("the conversation was erased meanwhile") from error
        except StoreError as error:
            await out_of_reach(error)
        else:
            return True
