"""Reading one's writes on another node, while the read model is slow, is rebuilt and swapped, again and again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from uuid import uuid4

from domain.conversation import Conversation
from domain.scope import Scope
from projections.commands import COMMANDS, find_command
from projections.conversations import CONVERSATIONS, get_conversation
from projections.display_messages import DISPLAY_MESSAGES
from projections.parked import parked_before
from projections.rebuild.run import rebuild
from projections.retrying import Retried, retry
from tests.support.given import CONVERSATION, asked, started, stored
from tests.support.poison import Poisoned
from tests.support.read_side import ReadSide, open_read_side
from tests.support.rebuilding import workshop
from tests.support.slack import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from uuid import UUID

ADA = Scope("acme", "ada")
READS, REBUILDS = 60, 2


async def newest(node: ReadSide, name: str, position: int) -> int:
    """Return the seq that a node shows of the conversation once its read model has reached the position."""
    assert await node.positions.wait([name], position, PATIENCE_S)
    async with node.database.connection() as connection:
        return int((await get_conversation(connection, ADA, CONVERSATION))["last_seq"])


async def growing(node: ReadSide, text: str = "Hello") -> AsyncIterator[tuple[int, int]]:
    """Append event by event; yield the seq and the position of each."""
    conversation = Conversation.at(CONVERSATION)
    seq = 0
    while True:
        fact = asked(f"m{seq}", text=text) if seq else started()
        event = fact.after(conversation)
        conversation.fold([event])
        seq += 1
        yield seq, await node.append([stored(event)])


async def test_r8_on_another_node_while_the_read_model_is_slow_and_swapped(database_url: str) -> None:
    projections = [CONVERSATIONS, DISPLAY_MESSAGES]
    async with open_read_side(database_url, projections) as writer, open_read_side(database_url, projections) as reader:

        async def disturb() -> None:
            for _ in range(REBUILDS):
                await rebuild(workshop(writer), [CONVERSATIONS])
                async with writer.holding("lock table conversations in exclusive mode"):
                    await asyncio.sleep(0.3)  # so slow is the projector now

        async with writer.projecting():
            disturbing = asyncio.create_task(disturb())
            async for seq, position in growing(writer):
                assert await newest(reader, "conversations", position) >= seq
                if seq >= READS and disturbing.done():
                    break
            await disturbing
        [generation] = await writer.execute("select generation from projections where name = 'conversations'")
        assert generation == (1 + REBUILDS,)


async def test_r8_what_is_parked_is_known_to_every_node_that_has_seen_the_position(database_url: str) -> None:
    poisoned = Poisoned(CONVERSATIONS)
    projections = [poisoned.projection]

    async def parked(node: ReadSide, position: int) -> list[UUID]:
        assert await node.positions.wait(["conversations"], position, PATIENCE_S)
        async with node.database.connection() as connection:
            return await parked_before(connection, ["conversations"], position, CONVERSATION)

    async with (
        open_read_side(database_url, projections) as writer,
        open_read_side(database_url, projections) as reader,
        writer.projecting(),
    ):
        async for seq, position in growing(writer, "poison"):
            assert await parked(reader, position) == ([] if seq == 1 else [CONVERSATION])
            assert await newest(reader, "conversations", position) == 1
            if seq == 20:
                break
        poisoned.broken = False
        assert await retry(reader.database, reader.store, poisoned.projection) == Retried(1, 0)
        assert await parked(reader, position) == []
        assert await newest(reader, "conversations", position) == 20


async def test_a_command_is_not_taken_for_unknown_while_its_conversation_is_parked(database_url: str) -> None:
    poisoned = Poisoned(COMMANDS)
    async with open_read_side(database_url, [poisoned.projection]) as node, node.projecting():
        async for seq, position in growing(node, "poison"):
            await node.reached(position)
            async with node.database.connection() as connection:
                assert await find_command(connection, CONVERSATION, uuid4()) == (None, 1)
                assert await find_command(connection, uuid4(), uuid4()) == (None, position)
            if seq == 3:
                break
