"""Leases: one holder at a time, taken over after their end, and fenced by the epoch."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from infra.database import Database
from infra.leases import Leases

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

LONG_S = 60.0
OVER_S = 0.0
"""A lease that has ended when it is looked at the next time."""


@pytest.fixture
async def leases(database_url: str) -> AsyncIterator[Leases]:
    async with Database(database_url, wait_s=LONG_S) as database:
        yield Leases(database)


async def test_one_of_many_takes_a_free_lease(leases: Leases) -> None:
    epochs = await asyncio.gather(*(leases.acquire("leader", f"worker {n}", LONG_S) for n in range(20)))

    assert [epoch for epoch in epochs if epoch is not None] == [1]


async def test_the_holder_acquires_again_under_the_same_epoch(leases: Leases) -> None:
    assert await leases.acquire("leader", "ada", LONG_S) == 1
    assert await leases.acquire("leader", "ada", LONG_S) == 1
    assert await leases.acquire("leader", "ben", LONG_S) is None


async def test_r7_a_lease_that_ended_is_taken_over_under_a_new_epoch_and_its_holder_is_fenced(leases: Leases) -> None:
    assert await leases.acquire("leader", "ada", OVER_S) == 1
    assert await leases.acquire("leader", "ben", LONG_S) == 2

    assert await leases.renew({"leader": 1}, "ada", LONG_S) == set()
    await leases.release({"leader": 1}, "ada")
    assert await leases.acquire("leader", "ada", LONG_S) is None, "releasing a lost lease takes it from nobody"


async def test_a_lease_that_ended_unnoticed_is_renewed_by_its_holder(leases: Leases) -> None:
    assert await leases.acquire("leader", "ada", OVER_S) == 1

    assert await leases.renew({"leader": 1}, "ada", LONG_S) == {"leader"}
    assert await leases.acquire("leader", "ben", LONG_S) is None


async def test_the_same_holder_after_the_end_gets_a_new_epoch(leases: Leases) -> None:
    assert await leases.acquire("leader", "ada", OVER_S) == 1
    assert await leases.acquire("leader", "ada", LONG_S) == 2


async def test_one_statement_renews_many_and_names_what_is_still_held(leases: Leases) -> None:
    held = {}
    for key in ("a", "b", "c"):
        epoch = await leases.acquire(key, "ada", OVER_S if key == "b" else LONG_S)
        assert epoch is not None
        held[key] = epoch
    await leases.acquire("b", "ben", LONG_S)

    assert await leases.renew(held, "ada", LONG_S) == {"a", "c"}
    assert await leases.renew({}, "ada", LONG_S) == set()


async def test_a_released_lease_is_free_at_once_and_its_epoch_goes_on_growing(leases: Leases) -> None:
    assert await leases.acquire("leader", "ada", LONG_S) == 1
    await leases.release({"leader": 1}, "ada")

    assert await leases.renew({"leader": 1}, "ada", LONG_S) == set(), "a late renewal does not bring it back"
    assert await leases.acquire("leader", "ben", LONG_S) == 2
