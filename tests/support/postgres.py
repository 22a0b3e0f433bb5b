"""Fixtures: one embedded PostgreSQL per test run, and a database of its own for every test that asks for one."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from infra.embedded_postgres import EmbeddedPostgres
from infra.migrations import migrate
from infra.postgres_cluster import locate_cluster
from tests.support.program import data_directory

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TEMPLATE = "rejoinder_template"
TRIES = 12


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The connection string of a running server's database ``postgres``."""
    with data_directory() as home, own_postgres(home) as server:
        yield server.dsn


@pytest.fixture(scope="session")
def template_database(postgres_server: str) -> str:
    """The name of a database with all migrations applied; connect to none: it is there to be copied."""
    _execute(postgres_server, sql.SQL("create database {}").format(sql.Identifier(TEMPLATE)))
    asyncio.run(migrate(make_conninfo(postgres_server, dbname=TEMPLATE)))
    return TEMPLATE


@pytest.fixture
def database_url(postgres_server: str, template_database: str) -> Iterator[str]:
    """The connection string of a fresh, migrated database, dropped after the test."""
    with fresh_database(postgres_server, template_database) as url:
        yield url


@pytest.fixture
def empty_database_url(postgres_server: str) -> Iterator[str]:
    """The connection string of a fresh database without any table, dropped after the test."""
    with fresh_database(postgres_server, "template1") as url:
        yield url


@contextmanager
def fresh_database(server: str, template: str) -> Iterator[str]:
    """Lend a database that is a copy of another one."""
    name = f"test_{uuid4().hex}"
    create = sql.SQL("create database {} template {}").format(sql.Identifier(name), sql.Identifier(template))
    _execute(server, create)
    yield make_conninfo(server, dbname=name)
    _execute(server, sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


@contextmanager
def own_postgres(home: Path) -> Iterator[EmbeddedPostgres]:
    """Run a server of one's own in a directory, such as `data_directory` lends."""
    server = EmbeddedPostgres(home)
    try:
        server.start()
        yield server
    finally:
        server.stop()


def postmaster(home: Path) -> int:
    """Return the process of the server that runs in a directory."""
    return int((locate_cluster(home).data / "postmaster.pid").read_text().split()[0])


def _execute(dsn: str, statement: sql.Composed) -> None:
    """Run a statement about a database, though PostgreSQL waits no more than five seconds for those who leave it."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        for _ in range(TRIES - 1):
            with suppress(psycopg.errors.ObjectInUse):
                connection.execute(statement)
                return
        connection.execute(statement)
