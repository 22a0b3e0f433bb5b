"""The command that goes on from an earlier point of a conversation in another one.

Its copies are appended under ids that follow from the command's: whoever sends it again, under the same key, goes on
where the first try ended. Until the last append says that it is whole a fork owes nothing and takes no commands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID, uuid5

from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import from_json

from commands.context import Receipt
from commands.conversations import mark_of
from commands.fork_copying import ForkCopying
from commands.fork_cut import cut_after, cut_before
from commands.send_message import SendMessage
from domain.errors import ConversationExists, ConversationIncomplete, IdempotencyMismatch, InvalidInput
from domain.wire import stream_of

if TYPE_CHECKING:
    from datetime import datetime

    from commands.context import CommandContext
    from commands.conversations import Conversations
    from domain.conversation import Conversation
    from domain.forking import Cut


class Fork(BaseModel):
    """Where to fork: after the event `at_seq`, or before a message, by its id. `message` is what is said there next."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    at_seq: Annotated[int, Field(ge=1)] | None = None
    before_message: str | None = Field(default=None, min_length=1, max_length=200)
    message: SendMessage | None = None
    title: str | None = Field(default=None, max_length=500)


async def fork(conversations: Conversations, source_id: UUID, body: Fork, context: CommandContext) -> Receipt:
    """Make a conversation of the same owner that begins as a copy of this one; the answer is as for a new one.

    Raises `CutsTurn`, `InvalidInput`, `ConversationIncomplete`, and what `Conversations.execute` raises.
    """
    await conversations.authorise(source_id, context.scope)
    fork_id = uuid5(context.command_id, "conversation")

    def decide(conversation: Conversation, now: datetime) -> dict[str, Any]:
        return _complete(conversation, body, context, now)

    if not await _is_whole(conversations, fork_id, context):
        cut = await _cut(conversations, source_id, body)
        decide(
            await _trial(conversations, source_id, cut), conversations.clock.now()
        )  # refused before any copy is made
        await ForkCopying(conversations, source_id, fork_id, cut).run(context)
        session = await conversations.load(fork_id)
        try:
            answer = await session.append(decide, mark=lambda said: mark_of(context, said))
        except ConversationExists:
            pass  # the same command, sent twice at once: the other was first
        else:
            await conversations.wake(session)
            return Receipt(fork_id, session.seq, session.position, answer)
    return await conversations.execute(fork_id, context, decide)


async def _is_whole(conversations: Conversations, fork_id: UUID, context: CommandContext) -> bool:
    """Say whether an earlier try of the command has made it whole; raises `IdempotencyMismatch` for another body."""
    if not context.keyed or not (begun := await conversations.store.read(stream_of(fork_id), before=2)):
        return False
    if from_json(begun[0].metadata).get("body_hash") != context.body_hash:
        raise IdempotencyMismatch("this idempotency key was used with another body; use a new key")
    return not (await conversations.load(fork_id)).conversation.copying


async def _cut(conversations: Conversations, source_id: UUID, body: Fork) -> Cut:
    source = (await conversations.load(source_id)).conversation
    if source.copying:
        raise ConversationIncomplete
    if body.at_seq is not None and body.before_message is None:
        if body.at_seq > source.version:
            raise InvalidInput("at_seq", f"the conversation has {source.version} events")
        return await cut_after(conversations, source_id, body.at_seq)
    if body.before_message is not None and body.at_seq is None:
        return await cut_before(conversations, source_id, body.before_message)
    raise InvalidInput("at_seq", "give either at_seq or before_message")


async def _trial(conversations: Conversations, source_id: UUID, cut: Cut) -> Conversation:
    """Return what the fork will be when its copies are there."""
    trial, _ = await conversations.load_until(source_id, cut.to_seq)
    for message in [message for message in trial.waiting.values() if message.seq in cut.without]:
        del trial.waiting[message.message_id]
    trial.copying = True
    return trial


def _complete(conversation: Conversation, body: Fork, context: CommandContext, now: datetime) -> dict[str, Any]:
    actor = context.scope.actor
    conversation.complete_fork(now=now, actor=actor)
    if body.title is not None:
        settings, metadata = conversation.settings, conversation.metadata
        conversation.change(title=body.title, settings=settings, metadata=metadata, now=now, actor=actor)
    if body.message is None:
        return {}
    when_busy = body.message.when_busy or conversation.settings.get("when_busy") or "enqueue"
    message = body.message.message(context.command_id, when_busy)
    conversation.send_message(message, now=now, actor=actor)
    return {"message_id": message.message_id, "queued": conversation.queued}
