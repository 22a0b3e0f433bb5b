"""What loading a conversation costs before a command or a turn, by its length: it is to be the same.

``python -m tests.benchmarks.bench_load``: one log with conversations of 100, 1,000, 10,000 and 100,000 events on an
embedded server, each at rest after a whole turn. They are loaded in turns, so that whatever else the machine does hits
all alike; `x` is the median of each round's ratio to the shortest.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from typing import TYPE_CHECKING

import psycopg
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from commands.conversations import Conversations
from domain.wire import conversation_of
from infra.agenda import PostgresWaker
from infra.clock import Clock
from infra.database import Database
from infra.migrations import migrate
from infra.postgres_event_store import PostgresEventStore
from infra.receipts import PostgresReceipts
from tests.benchmarks.realistic_log import fill, one_conversation
from tests.support.postgres import own_postgres
from tests.support.program import data_directory

if TYPE_CHECKING:
    from uuid import UUID

LENGTHS = (100, 1_000, 10_000, 100_000)
ROUNDS, LOADS = 60, 5


async def measure(dsn: str) -> dict[int, list[float]]:
    """Return the milliseconds of a load, round by round, by length."""
    await migrate(dsn)
    conversations: dict[int, UUID] = {}
    position = 0
    with psycopg.connect(dsn) as connection:
        for length in LENGTHS:
            events = one_conversation(length, position, seed=length)
            fill(connection, events)
            position = events[-1].position
            conversation_id = conversation_of(events[0].stream)
            assert conversation_id is not None
            conversations[length] = conversation_id
    took: dict[int, list[float]] = {length: [] for length in LENGTHS}
    async with PostgresEventStore(dsn) as store, Database(dsn) as database, Clock(database) as clock:
        loading = Conversations(store, clock, PostgresReceipts(database), PostgresWaker(database))
        for _ in range(ROUNDS):
            for length, conversation_id in conversations.items():
                began = time.perf_counter()
                for _ in range(LOADS):
                    await loading.load(conversation_id)
                took[length].append((time.perf_counter() - began) / LOADS * 1_000)
    return took


def table(took: dict[int, list[float]]) -> Table:
    shown = Table(box=SIMPLE_HEAD, title="Loading a conversation")
    for heading in ("events", "p50 ms", "x"):
        shown.add_column(heading, justify="right")
    shortest = took[LENGTHS[0]]
    for length, rounds in took.items():
        ratio = statistics.median(one / other for one, other in zip(rounds, shortest, strict=True))
        shown.add_row(f"{length:,}", f"{statistics.median(rounds):.2f}", f"{ratio:.2f}")
    return shown


def main() -> None:
    with data_directory() as home, own_postgres(home) as server:
        took = asyncio.run(measure(server.dsn))
    Console().print(table(took))


if __name__ == "__main__":
    main()
