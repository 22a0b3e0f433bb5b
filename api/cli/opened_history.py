"""The log of a conversation for a command that looks into it: in the stores, or in an exported file."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from api.cli.failures import CommandFailed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from api.debugging.history import History, LoadedLog
    from infra.settings import Settings


def checked(source: str) -> str:
    """Return what names a conversation or a file; anything else is wrong usage."""
    path, wanted = _file(source)
    if _uuid(source) is None and not path.is_file():
        raise typer.BadParameter(f"{source} is neither the id of a conversation nor a file")
    if wanted and _uuid(wanted) is None:
        raise typer.BadParameter(f"{wanted} is not the id of a conversation")
    return source


Source = Annotated[
    str,
    typer.Argument(
        metavar="CONVERSATION|FILE",
        help="The conversation's id, or an exported file (FILE#ID, where it holds several).",
        show_default=False,
        callback=checked,
    ),
]


@asynccontextmanager
async def opened_history(source: str, settings: Settings) -> AsyncIterator[History]:
    """Open what a `Source` names; what is not there, in the block too, is said in a line (`CommandFailed`)."""
    from api.debugging.history import History
    from domain.errors import ConversationNotFound, InvalidInput

    try:
        if (named := _uuid(source)) is not None:
            from api.app import opened_stores  # brings the whole server with it, which a file does not need
            from api.audited import AuditedRequests

            async with opened_stores(settings) as stores:
                yield History(stores.event_store, named, AuditedRequests(stores.database))
        else:
            yield History(*await asyncio.to_thread(_read, source))
    except ConversationNotFound:
        raise CommandFailed(f"there is no conversation {source}") from None
    except InvalidInput as error:
        raise CommandFailed(f"that event {error.message}") from None


def _read(source: str) -> tuple[LoadedLog, UUID]:
    """Read one conversation of a file: the only one, or the one that is named."""
    from api.debugging.history import LoadedLog
    from api.transfer.reader import ExportError, read_lines

    path, wanted = _file(source)
    conversation_id, others = _uuid(wanted), set[UUID]()
    events = []
    try:
        for line in read_lines(path):
            conversation_id = conversation_id or line.conversation_id
            if line.conversation_id == conversation_id:
                events.append(line.event)
            else:
                others.add(line.conversation_id)
    except ExportError as error:
        raise CommandFailed(f"{path}: {error}") from None
    if others and not wanted:
        raise CommandFailed(f"{path} holds {len(others) + 1} conversations: name one, as {path}#{conversation_id}")
    if conversation_id is None or not events:
        raise CommandFailed(f"{path} does not hold {f'conversation {wanted}' if wanted else 'any conversation'}")
    return LoadedLog(events), conversation_id


def _file(source: str) -> tuple[Path, str]:
    """Return the file, whose name may have a ``#`` too, and the id after it."""
    name, _, wanted = source.rpartition("#")
    return (Path(name), wanted) if name and not Path(source).exists() else (Path(source), "")


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None
