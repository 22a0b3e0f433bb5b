"""The list of conversations: what each is called, how it stands, and when something last happened."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from domain.errors import ConversationNotFound, InvalidInput
from domain.events import EVENT_TYPES
from projections.open_state import keep_state, load_state, only_awaits, owed_at_any_time, rests, skim
from projections.paging import Page, checked_limit, decode_cursor, encode_cursor, read_time
from projections.projection import Projection, Row, Rows
from projections.reading import fetch
from projections.search import INDEX, found, words_column
from projections.usage import reports, total
from projections.visibility import visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from psycopg import AsyncConnection

    from domain.conversation import Conversation
    from domain.scope import Scope
    from projections.event import Event

STATUSES = ("active", "suspended", "idle", "ended")


def fold(rows: Rows, events: Sequence[Event]) -> None:
    """Follow the conversation; `fsm_state` is written at each event after which it is idle or awaits input only.

    Of its summaries nothing but their usage is of interest.
    """
    row = dict(rows.get() or _new())
    row["usage"] = total(chain.from_iterable(map(reports, events)), row["usage"])
    if own := [event for event in events if event.type in EVENT_TYPES]:
        _follow(row, rows.conversation_id, own)
    if "first_position" in row:
        rows.put(row)


def _follow(row: Row, conversation_id: UUID, events: Sequence[Event]) -> None:
    conversation = load_state(conversation_id, row["state"])
    newest = skim(conversation, events)
    rested, before = _watch(row, conversation, newest), events[: -len(newest)]
    while before and not rested:  # it did in a turn before, or not at all
        earlier = load_state(conversation_id, row["state"])
        newest = skim(earlier, before)
        rested, before = _watch(row, earlier, newest), before[: -len(newest)]
    for event in events:
        _describe(row, event)
    row["status"] = _status(conversation)
    row["last_seq"], row["updated_at"] = events[-1].seq, events[-1].occurred_at
    row.setdefault("first_position", events[0].position)
    row["last_position"] = events[-1].position
    row["state"] = keep_state(conversation)


def _watch(row: Row, conversation: Conversation, events: Sequence[Event]) -> bool:
    """Evolve, keep how the conversation rested last, and return whether it did."""
    rested = False
    for event in events:
        conversation.evolve(event.decoded)
        if rests(conversation):
            row["fsm_state"], rested = _fsm_state(conversation, event.seq), True
    return rested


def _new() -> Row:
    return {
        "tenant": "",
        "owner": "",
        "title": None,
        "settings": {},
        "metadata": {},
        "forked_from": None,
        "forked_seq": None,
        "usage": total(()),
        "fsm_state": None,
        "created_at": None,
        "state": None,
    }


def _describe(row: Row, event: Event) -> None:
    data = event.data
    if event.type == "conversation_started":
        row["tenant"], row["owner"], row["title"] = data["tenant"], data["owner"], data.get("title")
        row["forked_from"] = UUID(data["forked_from"]) if data.get("forked_from") else None
        row["forked_seq"] = data.get("forked_seq")
        row["created_at"] = event.occurred_at
    if event.type in ("conversation_started", "conversation_changed"):
        row["settings"], row["metadata"] = data.get("settings", {}), data.get("metadata", {})
    if event.type == "conversation_changed" and data.get("title") is not None:
        row["title"] = data["title"] or None


def _status(conversation: Conversation) -> str:
    if conversation.ended:
        return "ended"
    if only_awaits(owed_at_any_time(conversation)):
        return "suspended"
    return "active" if conversation.busy else "idle"


def _fsm_state(conversation: Conversation, seq: int) -> dict[str, Any]:
    pending = {
        call.tool_call_id: {
            "executor": call.executor,
            "kind": call.question.kind,
            "prompt": call.question.prompt,
            "expires_at": call.question.expires_at.isoformat() if call.question.expires_at else None,
        }
        for call in conversation.calls.values()
        if call.question
    }
    return {"state": "awaiting_input" if pending else "idle", "pending": pending, "last_seq": seq}


CONVERSATIONS = Projection(
    name="conversations",
    version=4,
    columns={
        "tenant": "text not null",
        "owner": "text not null",
        "title": "text",
        "status": "text not null",
        "settings": "json not null",
        "metadata": "json not null",
        "forked_from": "uuid",
        "forked_seq": "int",
        "usage": "json not null",
        "fsm_state": "json",
        "last_seq": "int not null",
        "first_position": "bigint not null",
        "last_position": "bigint not null",
        "created_at": "timestamptz",
        "updated_at": "timestamptz not null",
        "state": "json",
    },
    streams="both",
    fold=fold,
    indexes=(
        "(tenant, updated_at, conversation_id)",
        "(tenant, owner, updated_at, conversation_id)",
        "(tenant, owner, last_position)",
        "(forked_from) where forked_from is not null",
        INDEX,
    ),
    extra=(words_column("title"),),
)

FIELDS = """conversation_id as id, conversation_id, tenant, owner, title, status, settings, metadata, forked_from,
    forked_seq, usage, fsm_state, last_seq, created_at, updated_at"""


MOST_FORKS = 200
"""Of one conversation are shown, the newest."""


async def get_conversation(connection: AsyncConnection, scope: Scope, conversation_id: UUID) -> dict[str, Any]:
    """Return a conversation as the API shows it, with its forks; raises `ConversationNotFound`."""
    condition, values = visible(scope, all_owners=scope.is_admin)
    found = await fetch(
        connection,
        f"select {FIELDS} from conversations where {condition} and conversation_id = %(id)s",
        {**values, "id": conversation_id},
    )
    if not found:
        raise ConversationNotFound("no such conversation")
    forks = await fetch(
        connection,
        f"select conversation_id, title, forked_seq, created_at from conversations "
        f"where {condition} and forked_from = %(id)s order by created_at desc, conversation_id limit %(limit)s",
        {**values, "id": conversation_id, "limit": MOST_FORKS},
    )
    return found[0] | {"forks": forks}


async def list_conversations(
    connection: AsyncConnection,
    scope: Scope,
    *,
    status: str | None = None,
    q: str | None = None,
    cursor: str | None = None,
    limit: int = 50,
) -> Page:
    """Return those that the scope may read, newest activity first; with `q` those in which it is found.

    Raises `InvalidInput`.
    """
    checked_limit(limit)
    condition, values = visible(scope, all_owners=scope.is_admin)
    if status is not None:
        if status not in STATUSES:
            raise InvalidInput("status", f"must be one of: {', '.join(STATUSES)}")
        condition, values["status"] = f"{condition} and status = %(status)s", status
    if q is not None and q.strip():
        condition, values = await found(connection, condition, values, q)
    if cursor is not None:
        values["before"], values["id"] = decode_cursor(cursor, read_time, UUID)
        condition = f"{condition} and (updated_at, conversation_id) < (%(before)s, %(id)s)"
    items = await fetch(
        connection,
        f"select {FIELDS} from conversations where {condition} "
        "order by updated_at desc, conversation_id desc limit %(limit)s",
        {**values, "limit": limit + 1},
    )
    return Page.of(items, limit, lambda last: encode_cursor(last["updated_at"], last["id"]))


# one statement, so one snapshot: what is not found was not there when the position was that
SPANS = """
select p.position, c.* from projections p
left join (
    select conversation_id, first_position, last_position, last_seq from conversations
    where tenant = %(tenant)s and owner = %(user)s and last_position > %(after)s
    union all
    select conversation_id, first_position, parked.last_position, parked.last_seq
    from parked join conversations using (conversation_id)
    where parked.projection = 'conversations' and tenant = %(tenant)s and owner = %(user)s
        and conversations.last_position <= %(after)s and parked.last_position > %(after)s
) as c on true
where p.name = 'conversations' order by c.first_position
"""


class LogSpan(NamedTuple):
    """A conversation, and where its events are: positions of the first and last, and the seq of the last."""

    conversation_id: UUID
    first_position: int
    last_position: int
    last_seq: int


async def spans_of(connection: AsyncConnection, scope: Scope, after: int) -> tuple[int, list[LogSpan]]:
    """Return how far the read model knows the log, and the caller's own conversations with an event after there."""
    values = {"tenant": scope.tenant, "user": scope.user, "after": after}
    found = await (await connection.execute(SPANS, values)).fetchall()
    return (found[0][0] if found else 0), [LogSpan(*row[1:]) for row in found if row[1] is not None]
