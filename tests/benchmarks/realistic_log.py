"""A generated log like those of real use: many conversations at once, texts of about 50 words, tools and approvals."""

from __future__ import annotations

import random
from bisect import bisect
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from typing import TYPE_CHECKING, Any
from uuid import UUID

import orjson

from domain.event_store import StoredEvent
from domain.wire import stream_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import psycopg

AT_ONCE = 200
"""So many conversations go on at the same time; their events are mixed in the log."""
TURNS = 6
WORDS = 50
VOCABULARY = 20_000
BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)
TENANTS, OWNERS = 5, 200
COPY = (
    "copy log.events (stream, seq, position, event_id, type, data, metadata) from stdin (format binary)",
    ["text", "int4", "int8", "uuid", "text", "bytea", "bytea"],
)


class Words:
    """Texts whose words are as frequent as in natural language."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        letters = "etaoinshrdlucmfw"
        self._words = ["".join(chance.choices(letters, k=chance.randrange(2, 11))) for _ in range(VOCABULARY)]
        self._weights = list(accumulate(1 / rank for rank in range(1, VOCABULARY + 1)))

    def text(self, words: int = WORDS) -> str:
        """Return about so many words."""
        total, draw = self._weights[-1], self._chance.random
        count = self._chance.randrange(words // 2, words * 3 // 2)
        return " ".join([self._words[bisect(self._weights, draw() * total)] for _ in range(count)])


class Talk:
    """One conversation, event by event."""

    def __init__(self, chance: random.Random, words: Words, turns: int | None = None) -> None:
        self._chance, self._words = chance, words
        self._turns = turns or chance.randrange(1, 2 * TURNS)
        self._coming = self._events()
        self._stream = stream_of(UUID(int=chance.getrandbits(128), version=4))
        self._owner = f"user-{chance.randrange(OWNERS)}"
        self._seq = 0

    def next(self, position: int) -> StoredEvent | None:
        """Return the next event, at this position; None at the end."""
        if (coming := next(self._coming, None)) is None:
            return None
        kind, data, more = coming
        event_id = self._uuid()
        occurred_at = (BEGINNING + timedelta(milliseconds=10 * position)).isoformat()
        metadata = {"event_id": str(event_id), "occurred_at": occurred_at, **more, "schema_version": 1}
        texts = orjson.dumps(data).decode(), orjson.dumps(metadata).decode()
        return StoredEvent(self._stream, self._seq, position, event_id, kind, *texts)

    def _events(self) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
        """Yield types, data and what the metadata has beyond the usual."""
        chance, text = self._chance, self._words.text
        tenant = f"tenant-{chance.randrange(TENANTS)}"
        yield self._next(
            "conversation_started",
            {"tenant": tenant, "owner": self._owner, "title": text(6), "settings": {}, "metadata": {"app": "web"}},
            command=True,
        )
        for turn in range(1, self._turns + 1):
            message = str(self._uuid())
            said: dict[str, Any] = {
                "message_id": message,
                "role": "user",
                "content": [{"type": "text", "text": text()}],
            }
            said |= {"metadata": {}, "respond": True, "when_busy": "enqueue"}
            yield self._next("user_msg", said, command=True)
            yield self._next("turn_started", {"turn": turn, "answers": [message], "settings_seq": 1})
            steps = chance.choice((1, 1, 2, 2, 3))
            for step in range(1, steps + 1):
                yield self._next("assistant_msg", self._reply(turn, step, last=step == steps))
                if step < steps:
                    yield from self._tool(turn)
            yield self._next("turn_ended", {"turn": turn, "outcome": "completed"})

    def _reply(self, turn: int, step: int, *, last: bool) -> dict[str, Any]:
        usage = {
            "model": "demo",
            "calls": 1,
            "input_tokens": 900 + self._seq,
            "output_tokens": 70,
            "cached_tokens": 512,
        }
        return {
            "turn": turn,
            "attempt": 1,
            "step": step,
            "content": [{"type": "text", "text": self._words.text()}],
            "model": "demo",
            "finish_reason": "stop" if last else "tool_calls",
            "context_seq": self._seq,
            "usage": {**usage, "cached_tokens": 512, "cost_usd": round(self._chance.random() / 100, 6)},
            "latency_ms": 800,
        }

    def _tool(self, turn: int) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
        gated = self._chance.random() < 0.2
        call = f"call_{self._uuid().hex}"
        called = {"turn": turn, "tool_call_id": call, "provider_id": "call_0", "name": "search"}
        called |= {"args": {"query": self._words.text(6), "limit": 5}, "executor": "server", "gated": gated}
        yield self._next("tool_call", called)
        if gated:
            expires = (BEGINNING + timedelta(days=300)).isoformat()
            asked = {"tool_call_id": call, "kind": "approval", "prompt": "Run search?", "expires_at": expires}
            yield self._next("suspension", asked)
            by = {"kind": "user", "id": self._owner}
            yield self._next("resolution", {"tool_call_id": call, "outcome": "approved", "by": by}, command=True)
        content = [{"type": "text", "text": self._words.text()}]
        yield self._next("tool_result", {"tool_call_id": call, "status": "ok", "content": content})

    def _next(
        self, kind: str, data: dict[str, Any], *, command: bool = False
    ) -> tuple[str, dict[str, Any], dict[str, Any]]:
        self._seq += 1
        cause = str(self._uuid())
        more: dict[str, Any] = {"correlation_id": cause, "causation_id": cause}
        more["actor"] = {"kind": "user", "id": self._owner}
        if command:
            more |= {"command_id": str(self._uuid()), "body_hash": "0123456789abcdef" * 4, "receipt": {"queued": 0}}
        return kind, data, more

    def _uuid(self) -> UUID:
        return UUID(int=self._chance.getrandbits(128), version=4)


def realistic_log(events: int, *, seed: int = 1) -> Iterator[StoredEvent]:
    """Yield so many events, ascending by position from 1; the last conversations are left in the middle."""
    chance = random.Random(seed)
    words = Words(chance)
    talks: list[Talk] = []
    for position in range(1, events + 1):
        while True:
            if len(talks) < AT_ONCE:
                talks.append(Talk(chance, words))
            at = chance.randrange(len(talks))
            if (event := talks[at].next(position)) is not None:
                yield event
                break
            talks[at] = talks[-1]
            talks.pop()


def one_conversation(events: int, after: int, *, seed: int = 1) -> list[StoredEvent]:
    """Return the events of one conversation of about so many, which rests; positions go on after `after`."""
    chance = random.Random(seed)
    talk = Talk(chance, Words(chance), turns=events)
    said: list[StoredEvent] = []
    while len(said) < events or said[-1].type != "turn_ended":
        event = talk.next(after + len(said) + 1)
        assert event is not None
        said.append(event)
    return said


def fill(connection: psycopg.Connection, events: Iterable[StoredEvent]) -> None:
    """Copy events into the log of the PostgreSQL store."""
    statement, types = COPY
    with connection.cursor().copy(statement) as copy:
        copy.set_types(types)
        for one in events:
            copy.write_row(
                (one.stream, one.seq, one.position, one.event_id, one.type, one.data.encode(), one.metadata.encode())
            )
    connection.commit()
    connection.autocommit = True
    connection.execute("vacuum (analyze) log.events")
    connection.autocommit = False
