"""The tables of projections are there once, whoever starts first."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from infra.database import Database
from projections.agenda import AGENDA
from projections.catalog import PROJECTIONS
from projections.schema import ensure_schema
from projections.versions import ProjectionMismatch, outdated, refuse_outdated


async def test_processes_that_start_together_create_each_table_once(database_url: str) -> None:
    async def start() -> None:
        async with Database(database_url) as database, database.connection() as connection:
            await ensure_schema(connection, PROJECTIONS)

    await asyncio.gather(start(), start(), start())

    async with Database(database_url) as database, database.connection() as connection:
        rows = await (await connection.execute("select name, version, status, position from projections")).fetchall()
    assert sorted(rows) == sorted((p.name, p.version, "new", 0) for p in PROJECTIONS)


async def test_a_table_of_an_older_version_is_left_alone_and_refused_on_demand(database_url: str) -> None:
    newer = replace(AGENDA, version=AGENDA.version + 1)
    async with Database(database_url) as database, database.connection() as connection:
        await ensure_schema(connection, [AGENDA])
        await ensure_schema(connection, [newer])
        assert await outdated(connection, [newer]) == [newer]
        with pytest.raises(ProjectionMismatch, match="rejoinder rebuild agenda"):
            await refuse_outdated(connection, [newer])
        await refuse_outdated(connection, [AGENDA])
