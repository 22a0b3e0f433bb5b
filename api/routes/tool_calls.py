"""Tool calls: the inbox of what waits for people, and their decisions."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID

from pydantic import BaseModel

from api.answers import Accepted, accepted, json_answer
from api.endpoints import command, query
from api.pages import PageOf, PageQuery
from api.reading import reading
from api.resources import resources
from api.routing import Route, conversation_id_of
from commands.reschedule_tool_call import RescheduleToolCall, reschedule_tool_call
from commands.resolve_tool_call import ResolveToolCall, resolve_tool_call
from projections.tool_calls import inbox, tool_calls_of

if TYPE_CHECKING:
    from aiohttp import web

    from commands.context import CommandContext
    from domain.scope import Scope

TOOL_CALLS = "/v1/conversations/{conversation_id}/tool-calls"
TOOL_CALL = f"{TOOL_CALLS}/{{tool_call_id}}"

Status = Literal["pending", "executing", "resolved", "errored", "rejected", "expired", "cancelled"]


class ToolCallsQuery(PageQuery):
    """Tool calls of this status, None for all."""

    status: Status | None = None


class InboxQuery(PageQuery):
    """Tool calls of this status."""

    status: Status = "pending"


class Decision(BaseModel):
    """Who decided what, when and why."""

    outcome: str
    by: dict[str, Any]
    reason: str | None
    at: datetime


class ToolCallItem(BaseModel):
    """A tool call and what became of it."""

    tool_call_id: str
    conversation_id: UUID
    turn: int
    name: str
    executor: Literal["server", "human", "client"]
    gated: bool
    status: Status
    kind: Literal["approval", "elicitation", "client"] | None
    prompt: str | None
    response_schema: dict[str, Any] | None
    args: Any
    edited_args: Any
    decision: Decision | None
    result: dict[str, Any] | None
    expires_at: datetime | None
    created_at: datetime
    resolved_at: datetime | None


@command("POST", f"{TOOL_CALL}/resolution", ResolveToolCall, answers={200: Accepted})
async def resolve(request: web.Request, body: ResolveToolCall, context: CommandContext) -> web.Response:
    """Approve, edit, reject or answer a pending tool call."""
    have = resources(request)
    receipt = await resolve_tool_call(
        have.conversations,
        have.toolset,
        have.settings.approval_timeout_s,
        conversation_id_of(request),
        request.match_info["tool_call_id"],
        body,
        context,
    )
    return accepted(receipt)


@command("PATCH", TOOL_CALL, RescheduleToolCall, answers={200: Accepted})
async def reschedule(request: web.Request, body: RescheduleToolCall, context: CommandContext) -> web.Response:
    """Give a pending tool call another deadline, or none."""
    receipt = await reschedule_tool_call(
        resources(request).conversations, conversation_id_of(request), request.match_info["tool_call_id"], body, context
    )
    return accepted(receipt)


@query(TOOL_CALLS, ToolCallsQuery, answer=PageOf[ToolCallItem])
async def list_tool_calls(request: web.Request, asked: ToolCallsQuery, scope: Scope) -> web.Response:
    """List the tool calls of a conversation in the order of its log."""
    async with reading(request, asked, "tool_calls", "conversations") as connection:
        page = await tool_calls_of(
            connection,
            scope,
            conversation_id_of(request),
            status=asked.status,
            cursor=asked.cursor,
            limit=asked.limit,
        )
    return json_answer(page)


@query("/v1/tool-calls", InboxQuery, answer=PageOf[ToolCallItem])
async def list_inbox(request: web.Request, asked: InboxQuery, scope: Scope) -> web.Response:
    """List what waits for people, oldest first: one's own, for approvers the tenant's."""
    async with reading(request, asked, "tool_calls", "conversations") as connection:
        page = await inbox(connection, scope, status=asked.status, cursor=asked.cursor, limit=asked.limit)
    return json_answer(page)


ROUTES: tuple[Route, ...] = (list_inbox, list_tool_calls, resolve, reschedule)
