"""`export`: conversations as a file."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from api.cli.failures import WRONG_USAGE, CommandFailed
from api.cli.job import Job

if TYPE_CHECKING:
    from collections.abc import Sequence

    from infra.settings import Settings

Conversations = Annotated[
    list[UUID] | None, typer.Argument(metavar="CONVERSATION", help="Conversations; all, if none is named.")
]


def export(conversations: Conversations = None) -> Job:
    """Write whole logs to standard output, one event a line, with their summaries.

    Each conversation is written as it is at one moment, beside whatever works on it. The file is
    for `import`, into another store too, and for `replay` and `verify --from`, which need neither
    server nor database. What it holds is all that was said: keep it as you keep the database.
    """
    return Job(partial(_export, conversation_ids=list(dict.fromkeys(conversations or []))))


async def _export(settings: Settings, *, conversation_ids: Sequence[UUID]) -> int:
    from api.app import opened_stores
    from api.cli.pace import Pace
    from api.cli.progress_bar import ProgressBar
    from api.rebuilding import workshop_of
    from api.transfer.exporting import export_all, export_named
    from api.transfer.writer import ExportWriter
    from domain.wire import stream_of
    from infra.log_identity import log_identity

    if sys.stdout.isatty():
        raise CommandFailed("what is exported belongs into a file: add `> FILE`", WRONG_USAGE)
    pace = Pace()
    async with opened_stores(settings) as stores:
        store = stores.event_store
        for one in conversation_ids:
            if not await store.read(stream_of(one), before=2):
                raise CommandFailed(f"there is no conversation {one}")
        writer = ExportWriter(sys.stdout.buffer, await log_identity(store))
        async with ProgressBar("export", pace.look):
            if conversation_ids:
                await export_named(store, conversation_ids, writer, pace.note)
            else:
                upto = await store.head()
                async with workshop_of(stores).open_log(None) as log:
                    await export_all(log, upto, writer, pace.note)
            writer.finish()
    return 0
