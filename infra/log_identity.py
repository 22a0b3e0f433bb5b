"""The identity of a log, and the check that read models belong to it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

from domain.event_store import NewEvent, StreamMoved

if TYPE_CHECKING:
    from domain.event_store import EventStore

LOG_STREAM = "rejoinder-log"


class WrongLog(Exception):
    """The read models of this database were not built from this log; the message says what to do."""


async def log_identity(store: EventStore) -> UUID:
    """Return the log's uuid, the one event of `LOG_STREAM`; who asks first gives it one."""
    while not (stored := await store.read(LOG_STREAM, limit=1, first=True)):
        event_id = uuid4()
        metadata = {"event_id": str(event_id), "occurred_at": datetime.now(UTC).isoformat(), "schema_version": 1}
        named = NewEvent(event_id, "log_identified", json.dumps({"log_id": str(uuid4())}), json.dumps(metadata))
        try:
            await store.append(LOG_STREAM, [named], 0)
        except StreamMoved:
            continue  # somebody else was first: theirs counts
    return UUID(json.loads(stored[0].data)["log_id"])


async def check_log(store: EventStore, *, known: UUID | None, checkpoint: int) -> UUID:
    """Return the log's identity, to be kept beside the read models.

    Raises `WrongLog` if they are `known` to be of another log, or have seen a `checkpoint` beyond this log's head.
    """
    identity = await log_identity(store)
    if known is not None and known != identity:
        raise WrongLog(
            f"the read models in this database were built from another log ({known}, this one is {identity}): "
            "connect the log that they belong to, or use an empty database"
        )
    head = await store.head()
    if checkpoint > head:
        raise WrongLog(
            f"the log is shorter (head {head}) than what the read models have seen (checkpoint {checkpoint}), as after "
            "restoring an older backup: restore the newer log, or use an empty database"
        )
    return identity
