"""Taking away what the audit has kept for long enough, a conversation at a time, also after it was turned off."""

from __future__ import annotations

import asyncio
import logging
import random
from datetime import timedelta
from typing import TYPE_CHECKING, NoReturn

import psycopg

from infra.audit_writing import collect_once
from infra.database import DatabaseUnavailable, first_line

if TYPE_CHECKING:
    from commands.ports import Clock
    from infra.database import Database

logger = logging.getLogger(__name__)

LOOK_EVERY_S = 60.0


class AuditExpiry:
    """Collects what is older than `ttl_s`, for ever; every worker may."""

    def __init__(self, database: Database, clock: Clock, *, ttl_s: float) -> None:
        self._database, self._clock, self._ttl = database, clock, timedelta(seconds=ttl_s)

    async def run(self) -> NoReturn:
        """Look each minute, about."""
        while True:
            try:
                await self.collect()
            except (DatabaseUnavailable, psycopg.Error) as error:
                logger.warning("the audit was not collected: %s", first_line(error), extra={"action": "audit_kept"})
            await asyncio.sleep(LOOK_EVERY_S * random.uniform(0.5, 1))

    async def collect(self) -> None:
        """Take away all that is too old by now. Raises `DatabaseUnavailable`, `psycopg.Error`."""
        before = self._clock.now() - self._ttl
        more = True
        while more:
            async with self._database.connection() as connection:
                more = await collect_once(connection, before)
