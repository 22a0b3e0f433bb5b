"""The commands about what the model sees of a conversation's older part: have it summarised, take a summary back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict

from commands.context import Receipt
from commands.conversations import answered_before, known_in, mark_of
from commands.ports import TooManyRaces
from commands.session import RACES
from domain.compaction import budget_of
from domain.errors import (
    ConversationEnded,
    ConversationIncomplete,
    ConversationNotFound,
    NothingToCompact,
    SummaryNotFound,
)
from domain.event_store import StreamDeleted, StreamMoved
from domain.scope import Scope
from domain.summaries import event, in_force
from domain.summary_events import SummaryRequested, SummaryRevoked
from domain.wire import decode, encode, summary_stream_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime
    from uuid import UUID

    from commands.context import CommandContext
    from commands.conversations import Conversations
    from commands.session import Session
    from domain.conversation import Conversation
    from domain.event_envelope import ConversationEvent

    Decide = Callable[[Sequence[ConversationEvent], datetime], tuple[ConversationEvent, dict[str, Any]]]


class Compact(BaseModel):
    """Nothing is to be said."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)


async def request_summary(conversations: Conversations, conversation_id: UUID, context: CommandContext) -> Receipt:
    """Have the older part of a conversation summarised, by the next worker that has time.

    Raises `ConversationNotFound`, `ConversationEnded`, `ConversationIncomplete`, `NothingToCompact`.
    """
    conversation = (await _authorised(conversations, conversation_id, context)).conversation

    def decide(_: Sequence[ConversationEvent], now: datetime) -> tuple[ConversationEvent, dict[str, Any]]:
        _check(conversation)
        return event(SummaryRequested, conversation_id, now=now, actor=context.scope.actor), {}

    return await _execute(conversations, conversation_id, context, decide)


async def revoke_summary(
    conversations: Conversations, conversation_id: UUID, to_seq: int, context: CommandContext
) -> Receipt:
    """Let the model see again what the summary up to `to_seq`, and those built on it, stood for, from the next turn on.

    Raises `ConversationNotFound`, `SummaryNotFound` if no summary in force ends there.
    """
    await _authorised(conversations, conversation_id, context)

    def decide(events: Sequence[ConversationEvent], now: datetime) -> tuple[ConversationEvent, dict[str, Any]]:
        revoked = [summary.to_seq for summary in in_force(events) if summary.to_seq >= to_seq]
        if to_seq not in revoked:
            raise SummaryNotFound("no summary in force ends there")
        made = event(SummaryRevoked, conversation_id, now=now, actor=context.scope.actor, to_seq=to_seq)
        return made, {"revoked": revoked}

    return await _execute(conversations, conversation_id, context, decide)


def _check(conversation: Conversation) -> None:
    if conversation.ended:
        raise ConversationEnded("the conversation was ended; its model is not asked any more")
    if conversation.copying:
        raise ConversationIncomplete
    if budget_of(conversation.settings, None).strategy == "none":
        raise NothingToCompact("the conversation's setting compaction.strategy is none; change it first")
    ended = conversation.turns - (conversation.turn is not None)
    if not ended:
        raise NothingToCompact("no turn of the conversation has ended yet; try again after its first answer")


async def _authorised(conversations: Conversations, conversation_id: UUID, context: CommandContext) -> Session:
    await conversations.authorise(conversation_id, context.scope, Scope.may_command)
    return await conversations.load(conversation_id)


async def _execute(
    conversations: Conversations, conversation_id: UUID, context: CommandContext, decide: Decide
) -> Receipt:
    """Append to the sibling stream what is decided on all that it holds; a repeat is answered as before."""
    stream = summary_stream_of(conversation_id)
    for _ in range(RACES):
        stored = await conversations.store.read(stream)
        if context.keyed and (known := known_in(stored, context.command_id)):
            return answered_before(known, context)
        made, answer = decide([decode(one) for one in stored], conversations.clock.now())
        record = encode(made, mark_of(context, answer))
        try:
            appended = await conversations.store.append(stream, [record], stored[-1].seq if stored else 0)
        except StreamMoved:
            continue
        except StreamDeleted as error:
            raise ConversationNotFound("no such conversation") from error
        return Receipt(conversation_id, appended.seq, appended.position, answer)
    raise TooManyRaces("others keep appending to this conversation; try again")
