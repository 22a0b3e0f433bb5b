"""What all runs of the matrix share: a PostgreSQL server, a scripted model server, a zygote, an HTTP client."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import aiohttp
from psycopg import AsyncConnection, sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from infra.database import Database
from infra.migrations import migrate
from projections.catalog import PROJECTIONS
from projections.schema import ensure_schema
from tests.crash.matrix.stores import EVENTSTOREDB, POSTGRES, StoreAddress
from tests.crash.matrix.victims import Zygote, running_zygote
from tests.support.model_script import Script, Scripted
from tests.support.model_server import serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from tests.support.model_server import ModelServer


class ScriptsByModel(Script):
    """Lets each run answer its own requests, which it knows by the model's name before the dot."""

    def __init__(self) -> None:
        super().__init__()
        self.by_run: dict[str, Callable[[dict[str, Any]], Scripted]] = {}

    def answer(self, body: dict[str, Any]) -> Scripted:
        """Return the answer to a request."""
        return self.by_run[body["model"].partition(".")[0]](body)


@dataclass(frozen=True)
class Rig:
    """The running parts; logs are on the EventStoreDB of `eventstoredb`, or beside the read models if it is ""."""

    server: str
    eventstoredb: str
    zygote: Zygote
    models: ModelServer
    session: aiohttp.ClientSession
    scripts: ScriptsByModel = field(default_factory=ScriptsByModel)
    databases: list[str] = field(default_factory=list)
    _idle: list[str] = field(default_factory=list)

    def store(self, database_url: str) -> StoreAddress:
        """Say where the log of a database's read models is."""
        if not self.eventstoredb:
            return StoreAddress(POSTGRES, database_url)
        return StoreAddress(EVENTSTOREDB, self.eventstoredb, f"{conninfo_to_dict(database_url)['dbname']}-")

    @asynccontextmanager
    async def database(self) -> AsyncIterator[str]:
        """Lend a database in which nothing goes on; it is lent again if nothing is raised: a new one costs much."""
        url = self._idle.pop() if self._idle else await self._made()
        yield url
        self._idle.append(url)

    async def _made(self) -> str:
        name = f"matrix_{uuid4().hex}"
        await _execute(self.server, sql.SQL("create database {}").format(sql.Identifier(name)))
        self.databases.append(name)
        url = make_conninfo(self.server, dbname=name)
        await migrate(url)
        async with Database(url) as database, database.connection() as connection:
            await ensure_schema(connection, PROJECTIONS)
        return url


@asynccontextmanager
async def assembled(server: str, eventstoredb: str = "") -> AsyncIterator[Rig]:
    """Assemble the parts over servers, given by their connection strings; PostgreSQL's is a superuser's."""
    async with AsyncExitStack() as stack:
        zygote = await stack.enter_async_context(running_zygote())
        models = await stack.enter_async_context(serving())
        session = await stack.enter_async_context(aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=20)))
        rig = Rig(server, eventstoredb, zygote, models, session)
        models.script = rig.scripts
        yield rig
    for name in rig.databases:
        await _execute(server, sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


async def _execute(dsn: str, statement: sql.Composed) -> None:
    async with await AsyncConnection.connect(dsn, autocommit=True) as connection:
        await connection.execute(statement)
