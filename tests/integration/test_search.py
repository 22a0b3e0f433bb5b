"""Full-text search over titles and what was said: scoped, paged, in all languages, and whatever people type."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from domain.conversation import Conversation
from domain.parts import Part, text_part
from domain.scope import Scope
from domain.wire import stream_of
from projections import search
from projections.conversations import CONVERSATIONS, list_conversations
from projections.display_messages import DISPLAY_MESSAGES
from tests.support.given import (
    NOW,
    OPEN_TURN,
    Fact,
    asked,
    called,
    claimed,
    closed,
    finished,
    got,
    said,
    started,
    stored,
)
from tests.support.read_side import ReadSide, open_read_side

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ADA, BEN = Scope("acme", "ada"), Scope("acme", "ben")
ADMIN, STRANGER = Scope("acme", "root", frozenset({"admin"})), Scope("other", "ada", frozenset({"admin"}))
FILL = """
insert into display_messages (conversation_id, seq, sequence, event_id, message_type, content_type, content, status,
    metadata, occurred_at)
select md5((n / 10)::text)::uuid, n % 10, 0, md5(n::text)::uuid, 'user', 'text',
    json_build_object('type', 'text', 'text', 'everywhere word' || n), 'completed', '{}', now()
from generate_series(1, 20000) n
"""


@pytest.fixture
async def read_side(database_url: str) -> AsyncIterator[ReadSide]:
    projections = (CONVERSATIONS, DISPLAY_MESSAGES)
    async with open_read_side(database_url, projections) as read_side, read_side.projecting():
        yield read_side


@pytest.fixture(params=["rare", "common"])
def _rare_or_common(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Take what is found for something rare, and for something that is everywhere: both ways must find the same."""
    if request.param == "common":
        monkeypatch.setattr(search, "MOST_HITS", 0)


async def told(read_side: ReadSide, number: int, *facts: Fact) -> None:
    """Let conversation `number` happen, each later than those of smaller numbers."""
    conversation, log = Conversation.at(UUID(int=number)), []
    for fact in facts:
        event = fact.after(conversation).model_copy(update={"timestamp": NOW + timedelta(minutes=number)})
        conversation.fold([event])
        log.append(stored(event))
    await read_side.reached(await read_side.append(log))


async def numbers(read_side: ReadSide, q: str, scope: Scope = ADA, **how: Any) -> list[int]:
    async with read_side.database.connection() as connection:
        page = await list_conversations(connection, scope, q=q, **how)
    return [UUID(item["id"]).int for item in page.items]


@pytest.mark.usefixtures("_rare_or_common")
async def test_titles_and_what_was_said_are_found_newest_activity_first(read_side: ReadSide) -> None:
    await told(read_side, 1, started(title="Trip to Paris"))
    await told(read_side, 2, started(), asked(text="Weather in PARIS?"), claimed(), said("Sunny, 21 °C"), closed())
    await told(read_side, 3, started(title="Other"))

    assert await numbers(read_side, "paris") == [2, 1]
    assert await numbers(read_side, "sunny") == [2]
    assert await numbers(read_side, "weather paris") == [2], "all words in one text"
    assert await numbers(read_side, '"to paris"') == [1]
    assert await numbers(read_side, "paris -weather") == [1]
    assert await numbers(read_side, "sunny or other") == [3, 2]
    assert await numbers(read_side, "berlin") == []
    assert await numbers(read_side, "  ") == [3, 2, 1], "nothing asked for is no search"


@pytest.mark.usefixtures("_rare_or_common")
async def test_p1_only_what_the_scope_may_read_is_found(read_side: ReadSide) -> None:
    await told(read_side, 1, started(title="secret"), asked(text="secret"))
    await told(read_side, 2, started(title="secret", owner="ben"), asked(text="secret"))

    assert await numbers(read_side, "secret") == [1]
    assert await numbers(read_side, "secret", BEN) == [2]
    assert await numbers(read_side, "secret", ADMIN) == [2, 1]
    assert await numbers(read_side, "secret", STRANGER) == []


@pytest.mark.usefixtures("_rare_or_common")
async def test_what_is_found_comes_in_pages_and_by_status(read_side: ReadSide) -> None:
    for number in range(1, 6):
        await told(read_side, number, started(title="report"), *([finished()] if number % 2 else []))

    pages: list[list[int]] = []
    cursor: Any = None
    async with read_side.database.connection() as connection:
        while True:
            page = await list_conversations(connection, ADA, q="report", cursor=cursor, limit=2)
            pages.append([UUID(item["id"]).int for item in page.items])
            if (cursor := page.next_cursor) is None:
                break
    assert pages == [[5, 4], [3, 2], [1]]
    assert await numbers(read_side, "report", status="ended") == [5, 3, 1]


async def test_thoughts_tools_and_notices_are_not_searched(read_side: ReadSide) -> None:
    thought = Part(type="thinking", text="private")
    await told(
        read_side,
        1,
        *OPEN_TURN,
        said("public", content=[thought, text_part("public")]),
        called(args={"a": "argument"}),
        got(text="outcome"),
        closed("failed", reason="max_steps"),
    )
    assert await numbers(read_side, "public") == [1]
    for word in ("private", "argument", "outcome", "failed"):
        assert await numbers(read_side, word) == []


async def test_all_languages_are_served_alike(read_side: ReadSide) -> None:
    await told(
        read_side,
        1,
        started(title="ÄRGER mit Straße"),
        asked(text="私は東京タワーへ行く"),
        asked("m2", text="Привет МИР"),
    )

    for q in ("ärger", "STRASSE or straße", "東京", "タワー", '"東京タワー"', "мир", "the or мир"):
        assert await numbers(read_side, q) == [1], q
    assert await numbers(read_side, '"京東"') == []


async def test_nothing_that_is_typed_is_an_error(read_side: ReadSide) -> None:
    await told(read_side, 1, started(title="hello"))
    for q in (
        '"',
        "'",
        "!! & | <-> ( )",
        "\\",
        "-",
        "-hello",
        "hello or -b",
        "%(q)s %s {}",
        "'; drop table conversations; --",
        "x" * 10_000,
        "é" * 3_000 + " " + "y" * 3_000,
        "( " * 5_000,
        '"a" ' * 2_500,
        "\u202e\u200b\ufffd🦜",
        "a:* b:A",
    ):
        assert await numbers(read_side, q) == [], q


async def test_l11_a_text_of_a_megabyte_of_distinct_words_is_stored_and_its_beginning_found(
    read_side: ReadSide,
) -> None:
    words = " ".join(f"{number:x}-{number:o}" for number in range(30_000))
    await told(read_side, 1, started(title="".join(map(chr, range(0x4E00, 0x9000)))), asked(text=f"{words} last"))
    assert await numbers(read_side, "2a-52") == [1]
    assert await numbers(read_side, "last") == []


async def test_p3_what_was_erased_is_not_found_any_more(read_side: ReadSide) -> None:
    await told(read_side, 1, started(title="secret"), asked(text="secret"))
    await read_side.store.delete(stream_of(UUID(int=1)))
    await read_side.reached(await read_side.store.head())
    assert await numbers(read_side, "secret", ADMIN) == []


async def test_what_is_rare_is_looked_up_in_the_index(read_side: ReadSide) -> None:
    await read_side.execute(FILL)
    await read_side.execute("analyze display_messages")
    async with read_side.database.connection() as connection:
        assert (await list_conversations(connection, ADA, q="word17")).items == []
        await connection.execute("select pg_stat_force_next_flush()")
        cursor = await connection.execute(
            "select indexrelname, idx_scan, idx_tup_read from pg_stat_user_indexes "
            "where relname = 'display_messages' and idx_scan > 0"
        )
        assert await cursor.fetchall() == [("display_messages_words_idx", 1, 1)]
