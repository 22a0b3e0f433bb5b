"""Tool calls and the decisions on them: one row per call, the inbox of approvals."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from domain.errors import InvalidInput
from projections.paging import Page, checked_limit, decode_cursor, encode_cursor, read_seq, read_time
from projections.projection import Projection, Row, Rows
from projections.reading import fetch
from projections.visibility import require_readable, visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from psycopg import AsyncConnection

    from domain.scope import Scope
    from projections.event import Event

RESULTS = {
    "ok": "resolved",
    "error": "errored",
    "rejected": "rejected",
    "expired": "expired",
    "cancelled": "cancelled",
}
"""Status of a result → status of its call."""
OPEN = frozenset({"pending", "executing"})
STATUSES = (*sorted(OPEN), *RESULTS.values())


def fold(rows: Rows, events: Sequence[Event]) -> None:
    """Follow each call from the model's wish to its result."""
    for event in events:
        data = event.data
        if event.type == "tool_call":
            rows.put(_called(event))
        elif (row := rows.get(data.get("tool_call_id"))) is None:
            continue
        elif event.type == "suspension":
            rows.put(row | _asked(data))
        elif event.type == "resolution":
            rows.put(row | _decided(row, event))
        elif event.type == "tool_result":
            result = {name: data[name] for name in ("status", "content", "resources") if name in data}
            rows.put(row | {"status": RESULTS[data["status"]], "result": result, "resolved_at": event.occurred_at})


def _called(event: Event) -> Row:
    data = event.data
    return {
        "tool_call_id": data["tool_call_id"],
        "seq": event.seq,
        "turn": data["turn"],
        "name": data["name"],
        "executor": data["executor"],
        "gated": data.get("gated", False),
        "status": "executing",
        "kind": None,
        "prompt": None,
        "response_schema": None,
        "args": data.get("args"),
        "edited_args": None,
        "decision": None,
        "result": None,
        "expires_at": None,
        "created_at": event.occurred_at,
        "resolved_at": None,
    }


def _asked(data: dict[str, Any]) -> Row:
    return {
        "status": "pending",
        "kind": data["kind"],
        "prompt": data["prompt"],
        "response_schema": data.get("response_schema"),
        "expires_at": datetime.fromisoformat(data["expires_at"]) if data.get("expires_at") else None,
    }


def _decided(row: Row, event: Event) -> Row:
    data = event.data
    changed: Row = {"status": "executing"}
    if data["outcome"] == "edited":
        changed["edited_args"] = data.get("args")
    if row["decision"] is None or data["outcome"] != "answered":  # a client's answer hides no approval
        changed["decision"] = decision_of(event)
    return changed


def decision_of(event: Event) -> dict[str, Any]:
    """Return what people are shown of a resolution."""
    data = event.data
    return {
        "outcome": data["outcome"],
        "by": data["by"],
        "reason": data.get("reason"),
        "at": event.occurred_at.isoformat(),
    }


TOOL_CALLS = Projection(
    name="tool_calls",
    version=1,
    columns={
        "tool_call_id": "text not null",
        "seq": "int not null",
        "turn": "int not null",
        "name": "text not null",
        "executor": "text not null",
        "gated": "boolean not null",
        "status": "text not null",
        "kind": "text",
        "prompt": "text",
        "response_schema": "json",
        "args": "json",
        "edited_args": "json",
        "decision": "json",
        "result": "json",
        "expires_at": "timestamptz",
        "created_at": "timestamptz not null",
        "resolved_at": "timestamptz",
    },
    key=("tool_call_id",),
    open_while=("status", OPEN),
    indexes=("(conversation_id, seq)", "(created_at, conversation_id, seq) where status = 'pending'"),
    fold=fold,
)

SELECT = """
select tool_call_id, tool_calls.conversation_id, turn, name, executor, gated, tool_calls.status, kind, prompt,
    response_schema, args, edited_args, decision, result, expires_at, tool_calls.created_at, resolved_at, seq
from tool_calls join conversations using (conversation_id)
"""


async def tool_calls_of(
    connection: AsyncConnection,
    scope: Scope,
    conversation_id: UUID,
    *,
    status: str | None = None,
    cursor: str | None = None,
    limit: int = 50,
) -> Page:
    """Return a conversation's calls in the order of its log. Raises `ConversationNotFound`, `InvalidInput`."""
    await require_readable(connection, scope, conversation_id)
    condition, values = visible(scope, all_owners=scope.is_admin)
    condition = f"{condition} and conversation_id = %(id)s"
    return await _listed(connection, condition, {**values, "id": conversation_id}, status, cursor, limit)


async def inbox(
    connection: AsyncConnection,
    scope: Scope,
    *,
    status: str | None = "pending",
    cursor: str | None = None,
    limit: int = 50,
) -> Page:
    """Return calls across conversations, oldest first: the pending ones of the tenant's for approvers, else one's own.

    Admins see all of the tenant. Raises `InvalidInput`.
    """
    all_owners = scope.is_admin or (scope.is_approver and status == "pending")
    condition, values = visible(scope, all_owners=all_owners)
    return await _listed(connection, condition, values, status, cursor, limit)


async def _listed(
    connection: AsyncConnection,
    condition: str,
    values: dict[str, Any],
    status: str | None,
    cursor: str | None,
    limit: int,
) -> Page:
    checked_limit(limit)
    if status is not None:
        if status not in STATUSES:
            raise InvalidInput("status", f"must be one of: {', '.join(STATUSES)}")
        condition, values["status"] = f"{condition} and tool_calls.status = %(status)s", status
    if cursor is not None:
        values["at"], values["conversation"], values["seq"] = decode_cursor(cursor, read_time, UUID, read_seq)
        condition += (
            " and (tool_calls.created_at, tool_calls.conversation_id, seq) > (%(at)s, %(conversation)s, %(seq)s)"
        )
    found = await fetch(
        connection,
        f"{SELECT} where {condition} order by tool_calls.created_at, tool_calls.conversation_id, seq limit %(limit)s",
        {**values, "limit": limit + 1},
    )
    return Page.of(found, limit, lambda last: encode_cursor(last["created_at"], last["conversation_id"], last["seq"]))
