"""The copies of a fork: appended in chunks, each known by its ids, so that anybody may go on with what has begun."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid5

from pydantic_core import from_json

from commands.chunks import first_chunk
from domain.errors import ConversationNotFound, IdempotencyMismatch
from domain.event_store import StreamDeleted, StreamMoved
from domain.forking import copies, first_event, summary_copies
from domain.wire import CommandMark, encode, stream_of, summary_stream_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from commands.context import CommandContext
    from commands.conversations import Conversations
    from domain.event_store import NewEvent
    from domain.forking import Cut

PAGE = 200
"""As large as events may be, so many of them fit into memory."""


class ForkCopying:
    """Appends what a fork still lacks of its copies, beside others that may do the same."""

    def __init__(self, conversations: Conversations, source_id: UUID, fork_id: UUID, cut: Cut) -> None:
        self._store, self._now = conversations.store, conversations.clock.now()
        self._source_id, self._fork_id, self._cut = source_id, fork_id, cut

    async def run(self, context: CommandContext) -> None:
        """Begin the fork if nobody has, copy the events, then the summaries. Raises `ConversationNotFound`."""
        source = await self._store.read(stream_of(self._source_id), before=2)
        if not source:
            raise ConversationNotFound("no such conversation")
        stream = stream_of(self._fork_id)
        if begun := await self._store.read(stream, before=2):
            if from_json(begun[0].data)["forked_seq"] != self._cut.to_seq:
                raise IdempotencyMismatch("the message of this id is another one by now; use a new key")
        else:
            first = first_event(source[0], self._fork_id, self._cut, now=self._now, actor=context.scope.actor)
            # of another id: what has only begun is not yet the command's answer
            mark = CommandMark(uuid5(context.command_id, "begun"), context.body_hash, {})
            await self._append(stream, [encode(first, mark)], 0)
        await self._copy_events(stream)
        await self._copy_summaries(summary_stream_of(self._fork_id))

    async def _copy_events(self, stream: str) -> None:
        head = await self._head(stream)
        while head < self._cut.length:
            page = await self._store.read(
                stream_of(self._source_id),
                after=self._cut.origin(head),
                before=self._cut.to_seq + 1,
                limit=PAGE + len(self._cut.without),
                first=True,
            )
            if not page:
                raise ConversationNotFound("no such conversation")
            head = await self._append_all(stream, copies(page, self._fork_id, self._cut), head)

    async def _copy_summaries(self, stream: str) -> None:
        made = summary_copies(await self._store.read(summary_stream_of(self._source_id)), self._fork_id, self._cut)
        head = await self._head(stream)
        await self._append_all(stream, made[head:], head)

    async def _append_all(self, stream: str, events: Sequence[NewEvent], head: int) -> int:
        while events:
            reached = await self._append(stream, events, head)
            events, head = events[reached - head :], reached
        return head

    async def _append(self, stream: str, events: Sequence[NewEvent], head: int) -> int:
        """Append the first of these events; return the seq of the newest event that is there then."""
        try:
            return (await self._store.append(stream, first_chunk(events), head)).seq
        except StreamMoved:  # somebody sent the same command, and was faster
            return await self._head(stream)
        except StreamDeleted as error:
            raise ConversationNotFound("no such conversation") from error

    async def _head(self, stream: str) -> int:
        newest = await self._store.read(stream, limit=1)
        return newest[-1].seq if newest else 0
