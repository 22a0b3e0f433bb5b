"""The real parts of a process, each behind a wrapper that counts what crosses it."""

from __future__ import annotations

import asyncio
import functools
import json
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from commands.agent.model import ModelReply
from domain.event_store import StreamMoved
from domain.summarising import INSTRUCTIONS
from domain.tools import Tool, ToolContext, Toolset

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Collection, Sequence
    from datetime import datetime
    from uuid import UUID

    from psycopg import AsyncConnection

    from commands.agent.agenda import Agenda, Claim
    from commands.agent.model import Delta, Model, ModelRequest
    from domain.event_store import Appended, Batch, EventStore, NewEvent, StoredEvent
    from domain.usage import Usage
    from infra.database import Database
    from tests.crash.matrix.boundaries import Boundaries

UNDER_WAY_S = 0.001
"""So long after an append was sent it is under way: nobody knows its outcome."""
SUMMARY_STREAM = "summary-"
SHOWN_S = 0.1
"""So long after a delta came people who watch see it."""


class CountedStore:
    """An event store; ``append#n`` has a before, a during (its outcome is unknown) and an after.

    Appends to the stream of summaries are ``summary-append#n``.
    """

    def __init__(self, store: EventStore, boundaries: Boundaries) -> None:
        self._store, self._boundaries = store, boundaries

    async def append(self, stream: str, events: Sequence[NewEvent], expected: int) -> Appended:
        types = [event.type for event in events]
        if stream.startswith(SUMMARY_STREAM):
            crossing, said = self._boundaries.next("summary-append"), {"summary_types": types}
        else:
            crossing, said = self._boundaries.next("append"), {"types": types}
        crossing.at("before", **said)
        if crossing.dies("during"):
            appending = asyncio.ensure_future(self._store.append(stream, events, expected))
            await asyncio.wait({appending}, timeout=UNDER_WAY_S)
            crossing.at("during", **said)
        try:
            appended = await self._store.append(stream, events, expected)
        except StreamMoved:
            crossing.at("moved", **said)
            raise
        crossing.at("after", **said, seq=appended.seq, recorded=[*filter(None, map(_recorded, events))])
        return appended

    async def read(
        self, stream: str, *, after: int = 0, before: int | None = None, limit: int | None = None, first: bool = False
    ) -> list[StoredEvent]:
        return await self._store.read(stream, after=after, before=before, limit=limit, first=first)

    async def read_all(self, after_position: int, *, limit: int, prefixes: Sequence[str] = ()) -> list[StoredEvent]:
        return await self._store.read_all(after_position, limit=limit, prefixes=prefixes)

    def subscribe(self, after_position: int, *, prefixes: Sequence[str] = ()) -> AsyncGenerator[Batch, None]:
        return self._store.subscribe(after_position, prefixes=prefixes)

    def subscribe_stream(self, stream: str, after: int) -> AsyncGenerator[Batch, None]:
        return self._store.subscribe_stream(stream, after)

    async def delete(self, stream: str) -> None:
        await self._store.delete(stream)

    async def head(self) -> int:
        return await self._store.head()


def _recorded(event: NewEvent) -> list[str] | None:
    """Return what an event records for good: the result of a call, or the value of one of its steps."""
    match event.type, json.loads(event.data):
        case "tool_result", {"tool_call_id": call_id}:
            return [call_id, "result"]
        case "tool_step", {"tool_call_id": call_id, "step": step, "n": n}:
            return [call_id, f"step {step} {n}"]
    return None


class CountedModel:
    """A model; ``model#n`` is a request: before it is sent, in the middle of its stream, after its end.

    Requests for summaries are ``summary#n``.
    """

    def __init__(self, model: Model, boundaries: Boundaries) -> None:
        self._model, self._boundaries = model, boundaries

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | Usage | ModelReply, None]:
        kind = "summary" if request.messages[0]["content"] == INSTRUCTIONS else "model"
        crossing, middle = self._boundaries.next(kind), False
        crossing.at("before", messages=len(request.messages))
        async with aclosing(self._model.stream(request)) as items:
            async for item in items:
                if isinstance(item, ModelReply):
                    crossing.at("after")
                elif not middle:
                    middle = True
                    if crossing.dies("middle"):
                        await asyncio.sleep(SHOWN_S)
                    crossing.at("middle")
                yield item


class CountedAgenda:
    """An agenda; ``claim#n`` and ``hand-back#n`` have a before and an after; so has one of another `kind` after it."""

    def __init__(self, agenda: Agenda, boundaries: Boundaries, *, kind: str = "") -> None:
        self._agenda, self._boundaries = agenda, boundaries
        self._claim, self._hand_back = f"{kind}claim", f"{kind}hand-back"
        self._claimed = f"{kind}claimed"

    async def claim(self, limit: int) -> list[Claim]:
        crossing = self._boundaries.next(self._claim)
        crossing.at("before")
        claims = await self._agenda.claim(limit)
        crossing.at("after", **{self._claimed: len(claims)})
        return claims

    async def claim_expired(self, limit: int) -> list[Claim]:
        crossing = self._boundaries.next(self._claim)
        crossing.at("before")
        claims = await self._agenda.claim_expired(limit)
        crossing.at("after", **{self._claimed: len(claims)})
        return claims

    async def claim_hinted(self, conversation_id: UUID) -> Claim | None:
        crossing = self._boundaries.next(self._claim)
        crossing.at("before")
        claim = await self._agenda.claim_hinted(conversation_id)
        crossing.at("after", **{self._claimed: int(claim is not None)})
        return claim

    async def finish(self, claim: Claim, seq: int, due_at: datetime | None) -> bool:
        crossing = self._boundaries.next(self._hand_back)
        crossing.at("before", seq=seq)
        finished = await self._agenda.finish(claim, seq, due_at)
        crossing.at("after", finished=finished)
        return finished

    async def release(self, claim: Claim, *, pause_s: float, failed: bool) -> None:
        crossing = self._boundaries.next(self._hand_back)
        crossing.at("before")
        await self._agenda.release(claim, pause_s=pause_s, failed=failed)
        crossing.at("after")

    async def extend(self, claims: Collection[Claim]) -> set[UUID]:
        return await self._agenda.extend(claims)

    async def due_in(self) -> float | None:
        return await self._agenda.due_in()

    async def sweep(self) -> None:
        await self._agenda.sweep()

    def hints(self) -> AsyncGenerator[UUID | None, None]:
        return self._agenda.hints()


class CountedDatabase:
    """The projector's connections; ``commit#n`` is a transaction that wrote rows: before its end is sent, after it."""

    def __init__(self, database: Database, boundaries: Boundaries) -> None:
        self._database, self._boundaries = database, boundaries

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Any]:
        async with self._database.connection() as connection:
            yield _CountedConnection(connection, self._boundaries)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)


class _CountedConnection:
    def __init__(self, connection: AsyncConnection, boundaries: Boundaries) -> None:
        self._connection, self._boundaries = connection, boundaries
        self._wrote = False

    @asynccontextmanager
    async def transaction(self, *given: Any, **named: Any) -> AsyncIterator[Any]:
        self._wrote, crossing = False, None
        async with self._connection.transaction(*given, **named) as transaction:
            yield transaction
            if self._wrote:
                crossing = self._boundaries.next("commit")
                crossing.at("before")
        if crossing is not None:
            crossing.at("after")

    async def execute(self, query: Any, *given: Any, **named: Any) -> Any:
        self._wrote = self._wrote or str(query).lstrip().startswith("insert into")
        return await self._connection.execute(query, *given, **named)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


def counted_tools(toolset: Toolset, boundaries: Boundaries) -> Toolset:
    """Count the runs of server tools: ``tool#n`` starts, leaves its effect under its id, and ends."""
    return Toolset(_counted_tool(made, boundaries) if made.executor == "server" else made for made in toolset)


def _counted_tool(made: Tool, boundaries: Boundaries) -> Tool:
    @functools.wraps(made.function)
    async def run(ctx: ToolContext, **arguments: Any) -> Any:
        crossing = boundaries.next("tool")
        crossing.at("start", tool=made.name)
        boundaries.note(effect=made.name, id=ctx.tool_call_id)
        value = await made.function(ctx=ctx, **arguments)
        crossing.at("end", tool=made.name)
        return value

    return replace(made, function=run)
