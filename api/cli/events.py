"""`events`: the log of a conversation."""

from __future__ import annotations

import json
import sys
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from api.cli.failures import CommandFailed
from api.cli.job import Job

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from domain.event_store import StoredEvent
    from infra.settings import Settings

PAGE = 500

Conversation = Annotated[
    UUID, typer.Argument(metavar="CONVERSATION", help="The conversation's id.", show_default=False)
]
Follow = Annotated[bool, typer.Option("--follow", "-f", help="Go on as events come, until Ctrl-C.")]
AsJson = Annotated[bool, typer.Option("--json", help="One event a line, as the log holds it.")]


def events(conversation: Conversation, follow: Follow = False, as_json: AsJson = False) -> Job:
    """Show the log of a conversation."""
    return Job(partial(_events, conversation_id=conversation, follow=follow, as_json=as_json))


async def _events(settings: Settings, conversation_id: UUID, *, follow: bool, as_json: bool) -> int:
    from api.app import opened_stores
    from domain.event_store import STREAM_DELETED
    from domain.wire import stream_of

    show: Callable[[Iterable[StoredEvent]], None] = _show_json if as_json else _Rows()
    stream = stream_of(conversation_id)
    async with opened_stores(settings) as stores:
        seq = 0
        while page := await stores.event_store.read(stream, after=seq, limit=PAGE, first=True):
            show(page)
            seq = page[-1].seq
        if seq == 0:
            raise CommandFailed(f"there is no conversation {conversation_id}")
        if follow:
            async with aclosing(stores.event_store.subscribe_stream(stream, seq)) as batches:
                async for batch in batches:
                    show(event for event in batch.events if event.type != STREAM_DELETED)
                    if batch.events and batch.events[-1].type == STREAM_DELETED:
                        break
    return 0


def _show_json(events: Iterable[StoredEvent]) -> None:
    from api.event_json import event_json

    sys.stdout.buffer.writelines(event_json(event) + b"\n" for event in events)
    sys.stdout.flush()


class _Rows:
    """A table that grows: seq, time, type and text, in colours and cut to its width on a terminal."""

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
        self._cut = self._console.width if self._console.is_terminal else None
        self._headed = False

    def __call__(self, events: Iterable[StoredEvent]) -> None:
        from rich.text import Text

        from api.event_text import COLOURS, event_text

        if not self._headed:
            self._console.print(f"{'seq':>5}  {'time (UTC)':<19}  {'type':<20}  event", style="bold")
            self._headed = True
        for event in events:
            at = str(json.loads(event.metadata).get("occurred_at", ""))[:19].replace("T", " ")
            row = Text(f"{event.seq:>5}  {at:<19}  ", style="dim")
            row.append(f"{event.type:<20}  {event_text(event.type, json.loads(event.data))}")
            row.stylize(COLOURS.get(event.type, "dim"), 28)
            if self._cut:
                row.truncate(self._cut, overflow="ellipsis")
            self._console.print(row)
        sys.stdout.flush()
