"""The tables of projections are there once, whoever starts first."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from infra.database import Database
from projections.agenda import AGENDA
from projections.catalog import PROJECTIONS
from projections.schema import ProjectionMismatch, ensure_schema


async def test_processes_that_start_together_create_each_table_once(database_url: str) -> None:
    async def start() -> None:
        async with Database(database_url) as database, database.connection() as connection:
            await ensure_schema(connection, PROJECTIONS)

    await asyncio.gather(start(), start(), start())

    async with Database(database_url) as database, database.connection() as connection:
        rows = await (await connection.execute("select name, version, status, position from projections")).fetchall()
    assert sorted(rows) == sorted((p.name, p.version, "new", 0) for p in PROJECTIONS)


async def test_a_table_of_another_version_is_refused(database_url: str) -> None:
    async with Database(database_url) as database, database.connection() as connection:
        await ensure_schema(connection, [AGENDA])
        with pytest.raises(ProjectionMismatch, match="agenda in the database is of version 1"):
            await ensure_schema(connection, [replace(AGENDA, version=2)])
