"""`what-if`: what a conversation would be with another log."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from api.cli.failures import WRONG_USAGE, CommandFailed
from api.cli.job import Job

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from api.debugging.changes import Changes
    from api.debugging.what_if import WhatIf
    from infra.settings import Settings

MOST_LINES = 12
"""Of what the model or people would see: the newest."""
MOST_CHARACTERS = 100

Conversation = Annotated[UUID, typer.Argument(help="The conversation's id.", show_default=False)]
Drop = Annotated[list[int] | None, typer.Option("--drop", metavar="SEQ", help="Leave this event out.")]
Replace = Annotated[
    list[str] | None, typer.Option("--replace", metavar="SEQ=JSON", help="Give fields of its data other values.")
]
Append = Annotated[
    list[str] | None,
    typer.Option(
        "--append", metavar="FILE|JSON", help="Add an event, or a file of them, one a line, as `events --json`."
    ),
]
At = Annotated[int | None, typer.Option("--at", metavar="SEQ", help="Look right after this event, not at the end.")]
AsJson = Annotated[bool, typer.Option("--json", help="The whole answer, with JSON Patches against what is.")]


def what_if(
    conversation: Conversation,
    drop: Drop = None,
    replace: Replace = None,
    append: Append = None,
    at: At = None,
    as_json: AsJson = False,
) -> Job:
    """Show what a conversation would be had events not come, said something else, or others come.

    It is folded in memory: nothing is recorded, and nothing is run. Events that
    can no longer follow are left out and named.
    """
    asked: dict[str, Any] = {"drop": drop or [], "replace": dict(map(_replaced, replace or ()))}
    asked |= {"append": [event for one in append or () for event in _appended(one)], "at": at}
    return Job(partial(_what_if, conversation_id=conversation, asked=asked, as_json=as_json))


def _replaced(option: str) -> tuple[str, Any]:
    seq, equals, data = option.partition("=")
    if not (equals and seq.strip().isdecimal()):
        raise typer.BadParameter('write it as SEQ=JSON, as in 9=\'{"status": "error"}\'', param_hint="--replace")
    return seq.strip(), _json(data, "--replace")


def _appended(option: str) -> list[Any]:
    if option.lstrip().startswith("{"):
        return [_json(option, "--append")]
    try:
        lines = Path(option).read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(
            f"it is no JSON, and no file that can be read: {error}", param_hint="--append"
        ) from error
    return [_json(line, "--append") for line in lines if line.strip()]


def _json(text: str, option: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise typer.BadParameter(f"it is not JSON: {error}", param_hint=option) from None


async def _what_if(settings: Settings, *, conversation_id: UUID, asked: dict[str, Any], as_json: bool) -> int:
    from api.answers import json_bytes
    from api.app import opened_stores
    from api.debugging.history import History
    from api.debugging.what_if import what_if as ask
    from api.errors import InvalidRequest
    from domain.errors import ConversationNotFound, InvalidInput

    async with opened_stores(settings) as stores:
        try:
            changes = _changes(asked)
            found = await ask(History(stores.event_store, conversation_id), changes, default_model=settings.model)
        except ConversationNotFound:
            raise CommandFailed(f"there is no conversation {conversation_id}") from None
        except (InvalidRequest, InvalidInput) as error:
            raise CommandFailed(str(error), WRONG_USAGE) from error
    if as_json:
        sys.stdout.buffer.write(json_bytes(found) + b"\n")
    else:
        _show(found)
    return 0


def _changes(asked: dict[str, Any]) -> Changes:
    from pydantic import ValidationError

    from api.debugging.changes import Changes
    from api.errors import InvalidRequest
    from api.field_errors import field_errors
    from domain.text import clean
    from domain.wire import dumps

    given = clean(asked)
    try:
        return Changes.model_validate_json(dumps(given), strict=True)
    except ValidationError as error:
        raise InvalidRequest(field_errors(error, given)) from None


def _show(found: WhatIf) -> None:
    from rich.console import Console

    console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
    console.print(f"really:   after event {found.reality.seq} the log owes {_owed(found.reality.owes)}")
    console.print(f"what if:  after event {found.seq} the log would owe {_owed(found.owes)}", style="bold")
    for title, doubts in (("can no longer follow", found.impossible), ("might have been otherwise", found.uncertain)):
        if doubts:
            console.print(f"\n{title}:", style="bold")
        for doubt in doubts:
            console.print(f"{doubt.seq:>5}  {doubt.type:<20}  {doubt.reason}", style="dim")
    _list(console, "the model would see", [_message_text(message) for message in found.working_set.messages])
    _list(console, "people would see", [_row_text(row) for row in found.messages])
    _list(console, "the state would differ by", [json.dumps(one, ensure_ascii=False) for one in found.patch])


def _list(console: Console, title: str, lines: Sequence[str]) -> None:
    from api.cli.printable import on_one_line, shortened

    console.print(f"\n{title}:" if lines else f"\n{title}: nothing", style="bold")
    if len(lines) > MOST_LINES:
        console.print(f"  … {len(lines) - MOST_LINES:,} before", style="dim")
    for line in lines[-MOST_LINES:]:
        console.print("  " + shortened(on_one_line(line), MOST_CHARACTERS))


def _owed(owes: Sequence[dict[str, Any]]) -> str:
    """Return what is owed in words, as ``run_tools call_1``."""
    texts = []
    for one in owes:
        named = [item for key in ("messages", "calls", "pending") for item in one.get(key) or ()]
        texts.append(" ".join([one["kind"], *named, *([one["reason"]] if "reason" in one else [])]))
    return ", ".join(texts) or "nothing"


def _message_text(message: dict[str, Any]) -> str:
    from api.cli.event_text import parts_text

    content = message.get("content") or ""
    calls = [f"{call['function']['name']}({call['function']['arguments']})" for call in message.get("tool_calls", ())]
    said = content if isinstance(content, str) else parts_text(content)
    return f"{message['role']:<10}{' '.join([said, *calls]).strip()}"


def _row_text(row: dict[str, Any]) -> str:
    from api.cli.event_text import call_text, parts_text

    content = row["content"]
    match row["content_type"]:
        case "tool_call":
            said = call_text(content["name"], content.get("args"))
        case "tool_result":
            said = parts_text(content["content"])
        case _:
            said = content.get("text") or row["content_type"]
    return f"{row['message_type']:<10}{said} [{row['status']}]"
