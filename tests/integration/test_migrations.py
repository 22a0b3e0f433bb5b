"""The schema: applied once, by whoever comes first, and never to a database of the future."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import psycopg
import pytest

from infra.migrations import MigrationError, find_migrations, migrate

if TYPE_CHECKING:
    from pathlib import Path


async def test_racing_processes_apply_each_migration_once(empty_database_url: str) -> None:
    await asyncio.gather(*(migrate(empty_database_url) for _ in range(5)))

    with psycopg.connect(empty_database_url) as connection:
        applied = connection.execute("select number from migrations order by number").fetchall()
    assert applied == [(migration.number,) for migration in find_migrations()]


async def test_a_database_that_is_newer_than_the_code_is_refused(database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        connection.execute("insert into migrations (number, name) values (9000, '9000_from_the_future')")

    with pytest.raises(MigrationError, match="9000"):
        await migrate(database_url)


async def test_a_migration_that_fails_leaves_nothing_behind(empty_database_url: str, tmp_path: Path) -> None:
    (tmp_path / "0001_good.sql").write_text("create table good (id int);")
    (tmp_path / "0002_bad.sql").write_text("create table bad (id int); select 1 / 0;")

    with pytest.raises(MigrationError, match="0002_bad: division by zero"):
        await migrate(empty_database_url, tmp_path)

    with psycopg.connect(empty_database_url) as connection:
        tables = connection.execute("select tablename from pg_tables where schemaname = 'public' order by 1").fetchall()
    assert tables == [("good",), ("migrations",)]


def test_no_two_migrations_have_one_number() -> None:
    numbers = [migration.number for migration in find_migrations()]
    assert len(set(numbers)) == len(numbers) > 0
