"""Leases: who may do what only one process does at a time, on PostgreSQL's clock, with an epoch that fences."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from infra.database import Database

# The same holder before the end keeps its epoch; anybody after it starts a new one
ACQUIRE = """
insert into leases as held (key, holder, epoch, until)
values (%(key)s, %(holder)s, 1, clock_timestamp() + make_interval(secs => %(ttl_s)s))
on conflict (key) do update set
    holder = excluded.holder,
    epoch = held.epoch + case when held.until > clock_timestamp() then 0 else 1 end,
    until = excluded.until
where held.until <= clock_timestamp() or held.holder = excluded.holder
returning epoch
"""
RENEW = """
update leases set until = clock_timestamp() + make_interval(secs => %(ttl_s)s)
from unnest(%(keys)s::text[], %(epochs)s::bigint[]) as mine (key, epoch)
where leases.key = mine.key and leases.epoch = mine.epoch and leases.holder = %(holder)s
    and leases.until > '-infinity'
returning leases.key
"""
# The row stays, so that the epoch goes on growing.
RELEASE = """
update leases set until = '-infinity'
from unnest(%(keys)s::text[], %(epochs)s::bigint[]) as mine (key, epoch)
where leases.key = mine.key and leases.epoch = mine.epoch and leases.holder = %(holder)s
"""


class Leases:
    """The table ``leases``. Every method may raise `infra.database.DatabaseUnavailable`.

    A lease only saves work: what its holder writes must be fenced by the epoch, for a holder may sleep through its end.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def acquire(self, key: str, holder: str, ttl_s: float) -> int | None:
        """Take a lease that is free or was never renewed in time; return its epoch, None while another holds it."""
        async with self._database.connection() as connection:
            cursor = await connection.execute(ACQUIRE, {"key": key, "holder": holder, "ttl_s": ttl_s})
            row = await cursor.fetchone()
        return row[0] if row else None

    async def renew(self, keys: Mapping[str, int], holder: str, ttl_s: float) -> set[str]:
        """Prolong all leases, given with their epochs, in one statement; return those that are still held."""
        async with self._database.connection() as connection:
            cursor = await connection.execute(
                RENEW, {"keys": list(keys), "epochs": list(keys.values()), "holder": holder, "ttl_s": ttl_s}
            )
            return {key for (key,) in await cursor.fetchall()}

    async def release(self, keys: Mapping[str, int], holder: str) -> None:
        """Give leases back before their end, all in one statement; one that is lost already is left alone."""
        async with self._database.connection() as connection:
            await connection.execute(RELEASE, {"keys": list(keys), "epochs": list(keys.values()), "holder": holder})
