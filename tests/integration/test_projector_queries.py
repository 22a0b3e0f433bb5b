"""Questions to read models: scoped, paged, and never older than asked for."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import pytest

from domain.conversation import Conversation
from domain.errors import ConversationNotFound, InvalidInput
from domain.parts import text_part
from domain.scope import Scope
from domain.usage import Usage
from domain.wire import CommandMark, encode
from projections import positions
from projections.commands import KnownCommand, find_command
from projections.conversations import get_conversation, list_conversations
from projections.messages import messages_of
from projections.paging import decode_cursor, encode_cursor
from projections.tool_calls import inbox, tool_calls_of
from projections.usage import usage_of
from tests.support.given import (
    CONVERSATION,
    GATED_CALL,
    LATER,
    NOW,
    OPEN_TURN,
    Fact,
    asked,
    called,
    closed,
    got,
    resolved,
    said,
    started,
    stored,
    suspended,
)
from tests.support.read_side import ReadSide, open_read_side
from tests.support.slack import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable


ADA, BEN = Scope("acme", "ada"), Scope("acme", "ben")
APPROVER, ADMIN = Scope("acme", "eve", frozenset({"approver"})), Scope("acme", "root", frozenset({"admin"}))
STRANGER = Scope("other", "ada", frozenset({"admin", "approver"}))


@pytest.fixture
async def read_side(database_url: str) -> AsyncIterator[ReadSide]:
    async with open_read_side(database_url) as read_side, read_side.projecting():
        yield read_side


async def told(read_side: ReadSide, *facts: Fact, conversation_id: UUID = CONVERSATION, minutes: int = 0) -> int:
    """Append a conversation and wait until it is projected."""
    conversation, log = Conversation.at(conversation_id), []
    for fact in facts:
        event = fact.after(conversation).model_copy(update={"timestamp": NOW + timedelta(minutes=minutes)})
        conversation.fold([event])
        log.append(stored(event))
    position = await read_side.append(log)
    await read_side.reached(position)
    return position


async def every_page(ask: Callable[[Any], Awaitable[Any]]) -> list[list[dict[str, Any]]]:
    pages, cursor = [], None
    while True:
        page = await ask(cursor)
        pages.append(page.items)
        if (cursor := page.next_cursor) is None:
            return pages


async def test_a_conversation_is_shown_with_all_its_fields(read_side: ReadSide) -> None:
    await told(read_side, started(title="Trip", settings={"model": "m"}, metadata={"b": 1, "a": 2}), *GATED_CALL[1:])
    async with read_side.database.connection() as connection:
        shown = await get_conversation(connection, ADA, CONVERSATION)
    assert shown == {
        "id": str(CONVERSATION),
        "conversation_id": str(CONVERSATION),
        "title": "Trip",
        "status": "suspended",
        "settings": {"model": "m"},
        "metadata": {"b": 1, "a": 2},
        "tenant": "acme",
        "owner": "ada",
        "forked_from": None,
        "forked_seq": None,
        "forks": [],
        "fsm_state": {
            "state": "awaiting_input",
            "pending": {
                "c1": {"executor": "server", "kind": "approval", "prompt": "?", "expires_at": LATER.isoformat()}
            },
            "last_seq": 6,
        },
        "usage": {"calls": 0, "input_tokens": 0, "output_tokens": 0, "cached_tokens": 0, "cost_usd": None},
        "last_seq": 6,
        "created_at": NOW.isoformat(),
        "updated_at": NOW.isoformat(),
    }
    assert list(shown["metadata"]) == ["b", "a"], "keys stay in their order"


async def test_p1_what_a_scope_may_not_see_is_as_if_absent(read_side: ReadSide) -> None:
    await told(read_side, *GATED_CALL)
    async with read_side.database.connection() as connection:
        for ask in (get_conversation, messages_of, tool_calls_of, usage_of):
            for scope in (ADA, ADMIN):
                await ask(connection, scope, CONVERSATION)
            refusals = set()
            for scope, wanted in (
                (BEN, CONVERSATION),
                (APPROVER, CONVERSATION),
                (STRANGER, CONVERSATION),
                (ADA, uuid4()),
            ):
                with pytest.raises(ConversationNotFound) as refused:
                    await ask(connection, scope, wanted)
                refusals.add(str(refused.value))
            assert len(refusals) == 1
        seen = [len((await list_conversations(connection, s)).items) for s in (ADA, ADMIN, BEN, APPROVER, STRANGER)]
        assert seen == [1, 1, 0, 0, 0]


async def test_p1_the_inbox_is_open_to_owner_approver_and_admin(read_side: ReadSide) -> None:
    await told(read_side, *GATED_CALL)
    await told(read_side, *GATED_CALL, resolved(), got(), conversation_id=uuid4())
    async with read_side.database.connection() as connection:
        for scope, pending, any_status in ((ADA, 1, 2), (APPROVER, 1, 0), (ADMIN, 1, 2), (BEN, 0, 0), (STRANGER, 0, 0)):
            assert len((await inbox(connection, scope)).items) == pending
            assert len((await inbox(connection, scope, status=None)).items) == any_status


async def test_conversations_are_listed_newest_activity_first_in_pages(read_side: ReadSide) -> None:
    ids = [uuid4() for _ in range(7)]
    for n, conversation_id in enumerate(ids):
        messages = [asked()] if n % 2 else []
        await told(read_side, started(title=str(n)), *messages, conversation_id=conversation_id, minutes=n // 2)

    async with read_side.database.connection() as connection:

        async def ask(cursor: str | None) -> Any:
            return await list_conversations(connection, ADMIN, cursor=cursor, limit=3)

        pages = await every_page(ask)
        active = await list_conversations(connection, ADA, status="active")
    assert [len(page) for page in pages] == [3, 3, 1]
    listed = [item for page in pages for item in page]
    assert {item["id"] for item in listed} == set(map(str, ids))
    assert [item["updated_at"] for item in listed] == sorted((item["updated_at"] for item in listed), reverse=True)
    assert {item["title"] for item in active.items} == {"1", "3", "5"}


async def test_pages_of_messages_never_split_an_event(read_side: ReadSide) -> None:
    three = [text_part("a"), text_part("b"), text_part("c")]
    await told(read_side, *OPEN_TURN, said(content=three), said(content=three[:2]), said(), closed())

    async with read_side.database.connection() as connection:
        newest = await messages_of(connection, ADA, CONVERSATION, limit=3)
        backwards = await every_page(lambda c: messages_of(connection, ADA, CONVERSATION, before_seq=c, limit=2))
        forwards = await every_page(lambda c: messages_of(connection, ADA, CONVERSATION, after_seq=c or 0, limit=2))
        window = await messages_of(connection, ADA, CONVERSATION, after_seq=3, before_seq=5)
        nothing = await messages_of(connection, ADA, CONVERSATION, after_seq=99)

    def places(items: list[dict[str, Any]]) -> list[tuple[int, int]]:
        return [(item["seq"], item["sequence"]) for item in items]

    whole = [(2, 0), (4, 0), (4, 1), (4, 2), (5, 0), (5, 1), (6, 0)]
    assert places(newest.items) == whole[-3:]
    assert [places(page) for page in backwards] == [whole[6:], whole[4:6], whole[1:4], whole[:1]]
    assert [places(page) for page in forwards] == [whole[:1], whole[1:4], whole[4:6], whole[6:]]
    assert places(window.items) == whole[1:4]
    assert (nothing.items, nothing.next_cursor) == ([], None)
    assert set(newest.items[0]) >= {
        "id",
        "seq",
        "sequence",
        "turn",
        "message_type",
        "content_type",
        "content",
        "status",
        "metadata",
        "occurred_at",
    }


async def test_tool_calls_are_listed_in_the_order_of_the_log_in_pages(read_side: ReadSide) -> None:
    calls = [called(f"c{n}", gated=n > 3) for n in range(6)]
    await told(read_side, *OPEN_TURN, said(""), *calls, suspended("c4"), suspended("c5"), got("c0"))
    async with read_side.database.connection() as connection:
        pages = await every_page(lambda c: tool_calls_of(connection, ADA, CONVERSATION, cursor=c, limit=4))
        pending = await tool_calls_of(connection, ADA, CONVERSATION, status="pending")
    assert [[call["tool_call_id"] for call in page] for page in pages] == [["c0", "c1", "c2", "c3"], ["c4", "c5"]]
    assert [call["tool_call_id"] for call in pending.items] == ["c4", "c5"]


async def test_usage_is_by_turn_purpose_and_model_with_a_total(read_side: ReadSide) -> None:
    usage = Usage(input_tokens=3, cost_usd=0.5)
    await told(read_side, *OPEN_TURN, said(usage=usage), said(usage=usage), said(usage=Usage(model="x")), closed())
    async with read_side.database.connection() as connection:
        answered = await usage_of(connection, ADA, CONVERSATION)
    sums = {"input_tokens": 6, "output_tokens": 0, "cached_tokens": 0, "cost_usd": 1.0}
    none = {"input_tokens": 0, "output_tokens": 0, "cached_tokens": 0, "cost_usd": None}
    assert answered == {
        "items": [
            {"turn": 1, "purpose": "turn", "model": "demo", "calls": 2, **sums},
            {"turn": 1, "purpose": "turn", "model": "x", "calls": 1, **none},
        ],
        "total": {"calls": 3, **sums},
    }


@pytest.mark.parametrize(
    "cursor",
    [
        "x",
        "é",
        "\x00",
        "AAAA",
        "W10",
        "!" * 10_000,
        encode_cursor("2026-01-01", str(CONVERSATION)),
        encode_cursor(1, 2),
    ],
)
async def test_a_cursor_that_no_list_gave_is_refused(read_side: ReadSide, cursor: str) -> None:
    async with read_side.database.connection() as connection:
        for ask in (list_conversations, inbox):
            with pytest.raises(InvalidInput, match="cursor"):
                await ask(connection, ADMIN, cursor=cursor)


async def test_bad_limits_and_statuses_are_refused(read_side: ReadSide) -> None:
    await told(read_side, started())
    async with read_side.database.connection() as connection:
        for limit in (0, 201, -1):
            with pytest.raises(InvalidInput, match="limit"):
                await messages_of(connection, ADA, CONVERSATION, limit=limit)
        with pytest.raises(InvalidInput, match="status"):
            await list_conversations(connection, ADA, status="done")
        with pytest.raises(InvalidInput, match="status"):
            await inbox(connection, ADA, status="done\x00")
        with pytest.raises(InvalidInput, match="before_seq"):
            await messages_of(connection, ADA, CONVERSATION, before_seq=-1)
        assert (await messages_of(connection, ADA, CONVERSATION, before_seq=10**30)).items == []


def test_a_cursor_gives_back_its_values() -> None:
    assert decode_cursor(encode_cursor("a", 2), str, int) == ["a", 2]


async def test_a_command_is_found_once_its_event_is_projected(read_side: ReadSide) -> None:
    command_id = uuid4()
    event = stored(started().after(Conversation.at(CONVERSATION)))
    new = encode(started().after(Conversation.at(CONVERSATION)), CommandMark(command_id, "hash", {"queued": 0}))
    position = await read_side.append([replace(event, metadata=new.metadata)])
    await read_side.reached(position)
    async with read_side.database.connection() as connection:
        known, reached = await find_command(connection, CONVERSATION, command_id)
        absent, as_far = await find_command(connection, CONVERSATION, uuid4())
    assert known == KnownCommand(CONVERSATION, 1, position, "hash", {"queued": 0})
    assert absent is None
    assert reached == as_far == position


async def test_r8_min_position_never_returns_older_data_than_asked_for(read_side: ReadSide) -> None:
    conversation = Conversation.at(CONVERSATION)
    for n, fact in enumerate([started(), *(asked(f"m{n}") for n in range(40))], start=1):
        event = fact.after(conversation)
        conversation.fold([event])
        position = await read_side.append([stored(event)])
        assert await read_side.positions.wait(["conversations"], position, PATIENCE_S)
        async with read_side.database.connection() as connection:
            assert (await get_conversation(connection, ADA, CONVERSATION))["last_seq"] == n
    assert not await read_side.positions.wait(["conversations"], position + 1, 0.05)
    assert not await read_side.positions.wait(["conversations", "no_such"], position, 0)


async def test_r8_a_wait_ends_at_once_when_the_position_is_reached(
    read_side: ReadSide, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(positions, "LOOK_EVERY_S", 600.0)  # the poll that would find it too
    position = await told(read_side, started())
    waiting = asyncio.create_task(read_side.positions.wait(["usage"], position + 2, PATIENCE_S))
    await read_side.append([stored(asked().after(Conversation.at(CONVERSATION, 1)))])
    assert not waiting.done()
    third = stored(asked("m2").after(Conversation.at(CONVERSATION, 2)))
    await read_side.append([third])
    assert await waiting


async def test_lag_is_counted_in_events_and_seconds_and_never_ran_is_not_caught_up(database_url: str) -> None:
    async with open_read_side(database_url) as read_side:
        agenda = (await read_side.statuses(now=LATER))["agenda"]
        assert (agenda["status"], agenda["lag_events"], agenda["lag_seconds"]) == ("new", None, None)
        async with read_side.projecting():
            await told(read_side, started())
        conversation = Conversation.at(CONVERSATION, 1)
        log = []
        for n in range(150):
            event = asked(f"m{n}").after(conversation)
            conversation.fold([event])
            log.append(stored(event))
        await read_side.append(log)
        behind = await read_side.statuses(now=LATER)
        assert {(row["lag_events"], row["lag_seconds"]) for row in behind.values()} == {(150, 3600.0)}
        async with read_side.projecting():
            await read_side.reached(await read_side.store.head())
        at_head = await read_side.statuses(now=LATER)
        assert {(row["lag_events"], row["lag_seconds"]) for row in at_head.values()} == {(0, 0.0)}
