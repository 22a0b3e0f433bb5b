"""The audit's tables: parts that conversations share, their end of life, erasure, and trouble with the database."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import psycopg
import pytest

from commands.agent.audit import CallAbout, TryEnded, audited
from commands.agent.model import Delta, ModelError, ModelReply, ModelRequest
from domain.parts import text_part
from domain.usage import Usage
from infra import audit
from infra.audit import PostgresAudit
from infra.audit_expiry import AuditExpiry
from infra.audit_reading import request_as_of
from infra.audit_writing import erase_audit
from infra.database import Database
from tests.support.slack import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

START = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
TABLES = ("model_calls", "audit_parts", "audit_uses")


@dataclass
class Tables:
    """The audit of a test, its database and its clock."""

    url: str
    database: Database
    time: datetime = START
    audit: PostgresAudit = field(init=False)

    def __post_init__(self) -> None:
        self.audit = PostgresAudit(self.database, self)

    def now(self) -> datetime:
        return self.time

    async def call(self, conversation_id: UUID, *texts: str, seq: int = 1, **about: Any) -> UUID:
        """Keep a call with these messages."""
        messages = [{"role": "user", "content": text} for text in texts]
        given = CallAbout(conversation_id=conversation_id, purpose="turn", context_seq=seq, **about)
        call = self.audit.begin(given, 1, ModelRequest("m", messages))
        await self.audit.kept(call)
        self.audit.end(call, TryEnded("ok", 1))
        return call

    async def collect(self, ttl_s: float = 60) -> None:
        """Take away what is older."""
        await AuditExpiry(self.database, self, ttl_s=ttl_s).collect()

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url) as connection:
            return connection.execute(query.encode()).fetchall()

    def counts(self) -> tuple[int, ...]:
        """Return how many rows each of `TABLES` has."""
        return tuple(self.rows(f"select count(*) from {table}")[0][0] for table in TABLES)

    async def texts_as_of(self, conversation_id: UUID, seq: int) -> str:
        async with self.database.connection() as connection:
            sent = await request_as_of(connection, conversation_id, seq)
        return sent.raw.decode() if sent else ""


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing go unwritten because a machine is slow."""
    monkeypatch.setattr(audit, "KEPT_WITHIN_S", PATIENCE_S)
    monkeypatch.setattr(audit, "LAST_NOTES_S", PATIENCE_S)


@pytest.fixture
async def tables(database_url: str) -> AsyncIterator[Tables]:
    async with Database(database_url) as database:
        made = Tables(database_url, database)
        async with made.audit:
            yield made


async def test_c6_what_is_too_old_goes_with_the_parts_that_nobody_else_has(tables: Tables) -> None:
    one, other = uuid4(), uuid4()
    await tables.call(one, "shared", "old")
    tables.time += timedelta(seconds=50)
    await tables.call(one, "shared", "new", seq=2)
    await tables.call(other, "shared")
    assert tables.counts() == (3, 5, 8)

    await tables.collect()
    assert tables.counts() == (3, 5, 8)
    tables.time += timedelta(seconds=20)
    await tables.collect()
    assert tables.counts() == (2, 4, 7)
    assert '"new"' in await tables.texts_as_of(one, 2)
    assert await tables.texts_as_of(one, 1) == ""

    tables.time += timedelta(seconds=60)
    await tables.collect()
    assert tables.counts() == (0, 0, 0)
    await tables.call(one, "shared", "again")
    assert tables.counts() == (1, 4, 4)


async def test_c6_processes_that_write_and_collect_at_once_lose_no_part_that_is_needed(tables: Tables) -> None:
    ids = [uuid4() for _ in range(6)]
    stop = asyncio.Event()

    async def collect() -> None:
        while not stop.is_set():
            await tables.collect(ttl_s=0)

    async with PostgresAudit(tables.database, tables) as beside:
        other = Tables(tables.url, tables.database)
        other.audit = beside
        collecting = [asyncio.create_task(collect()) for _ in range(2)]
        for seq in range(1, 16):
            tables.time += timedelta(seconds=1)
            texts = [f"text {n % 5}" for n in range(seq, seq + 4)]
            calls = [(tables if n % 2 else other).call(one, *texts, seq=seq) for n, one in enumerate(ids)]
            await asyncio.gather(*calls)
        stop.set()
        await asyncio.gather(*collecting)
    broken = """
        select from model_calls c, unnest(messages || tools || params) part
        where not exists (select from audit_parts where id = part)
            or not exists (select from audit_uses u where u.part = part.part and u.conversation_id = c.conversation_id)
    """
    assert tables.rows(broken) == []
    tables.time += timedelta(seconds=1)
    await tables.collect(ttl_s=0)
    assert tables.counts() == (0, 0, 0)


async def test_p3_an_erased_conversation_leaves_nothing_and_a_worker_that_is_late_adds_nothing(tables: Tables) -> None:
    one, other = uuid4(), uuid4()
    await tables.call(one, "shared", "secret")
    await tables.call(other, "shared")
    about = CallAbout(conversation_id=one, purpose="turn")
    late = tables.audit.begin(about, 1, ModelRequest("m", [{"role": "user", "content": "a secret"}]))
    async with tables.database.connection() as connection:
        await erase_audit(connection, one)
        await erase_audit(connection, one)
    await tables.audit.kept(late)
    tables.audit.end(late, TryEnded("ok", 1))
    await tables.call(one, "another secret")

    assert tables.counts() == (1, 3, 3)
    assert tables.rows("select from audit_parts where body like '%secret%'") == []


class Breaking:
    """A model that ends as a test wants it."""

    def __init__(self, end: ModelReply | Exception | None) -> None:
        self.end = end

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | Usage | ModelReply, None]:
        yield Usage(model="m", input_tokens=5)
        yield Delta("text", "So")
        if self.end is None:
            await asyncio.Event().wait()
        elif isinstance(self.end, Exception):
            raise self.end
        else:
            yield self.end


@asynccontextmanager
async def asking(tables: Tables, end: ModelReply | Exception | None) -> AsyncIterator[AsyncGenerator[Any, None]]:
    model = audited(Breaking(end), tables.audit, CallAbout(conversation_id=uuid4(), purpose="title"))
    async with aclosing(model.stream(ModelRequest("m", [], params={"seed": 1}))) as stream:
        yield stream


async def test_c6_whatever_becomes_of_a_try_is_kept(tables: Tables) -> None:
    reply = ModelReply([text_part("yes")], (), "m", "stop", Usage(model="m", input_tokens=7), 3)
    used = Usage(model="m", input_tokens=6)
    async with PostgresAudit(tables.database, tables) as tables.audit:
        for end in (reply, ModelError("auth", "no", retryable=False, usage=used), ZeroDivisionError("secret")):
            async with asking(tables, end) as stream:
                if isinstance(end, ModelReply):
                    assert [item async for item in stream][-1] is reply
                    assert len(tables.rows("select from model_calls")) == 1, "it is kept before its reply is given out"
                else:
                    with pytest.raises(type(end)):
                        [item async for item in stream]
        async with asking(tables, None) as stream:
            await anext(stream)

    query = "select outcome, reason, finish_reason, usage ->> 'input_tokens' from model_calls order by 1, 2"
    assert tables.rows(query) == [
        ("cancelled", None, None, "5"),
        ("failed", "ZeroDivisionError", None, "5"),
        ("failed", "auth", None, "6"),
        ("ok", None, "stop", "7"),
    ]


async def test_what_was_noted_last_is_written_when_the_process_stops(database_url: str) -> None:
    async with Database(database_url) as database:
        tables = Tables(database_url, database)
        async with tables.audit:
            call = tables.audit.begin(CallAbout(conversation_id=uuid4(), purpose="turn"), 1, ModelRequest("m", []))
            tables.audit.end(call, TryEnded("cancelled", 1))
        assert tables.rows("select outcome from model_calls") == [("cancelled",)]


async def test_a_database_that_refuses_delays_a_reply_for_a_second_at_most_and_loses_that_note_alone(
    tables: Tables, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(audit, "PAUSE_S", 0.01)
    monkeypatch.setattr(audit, "KEPT_WITHIN_S", 0.05)
    with psycopg.connect(tables.url, autocommit=True) as connection:
        connection.execute("alter table model_calls add constraint picky check (context_seq <> 13)")
    await tables.call(uuid4(), "refused", seq=13)
    monkeypatch.setattr(audit, "KEPT_WITHIN_S", PATIENCE_S)
    await tables.call(uuid4(), "kept")
    assert [seq for (seq,) in tables.rows("select context_seq from model_calls")] == [1]
    assert "not whole in the audit" in caplog.text
    assert "refused" not in "".join(str(one) for one in tables.rows("select body from audit_parts"))


async def test_a_request_that_cannot_be_kept_is_said_and_the_next_one_is_kept(
    tables: Tables, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    about = CallAbout(conversation_id=uuid4(), purpose="turn")
    odd = ModelRequest("m", [], params={"temperature": float("nan")})
    tables.audit.begin(about, 1, odd)
    await tables.call(uuid4(), "kept")
    assert tables.counts()[0] == 1
    assert "a model call is not in the audit" in caplog.text

    monkeypatch.setattr(audit, "MOST_WAITING", 0)
    lost = tables.audit.begin(about, 2, ModelRequest("m", []))
    await tables.audit.kept(lost)
    tables.audit.end(lost, TryEnded("ok", 1))
    assert "too many wait" in caplog.text
    assert tables.counts()[0] == 1
