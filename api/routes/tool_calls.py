"""Tool calls: the inbox of what waits for people, and their decisions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from api.answers import Accepted, accepted
from api.endpoints import command
from api.resources import resources
from api.routing import Route, conversation_id_of
from commands.reschedule_tool_call import RescheduleToolCall, reschedule_tool_call
from commands.resolve_tool_call import ResolveToolCall, resolve_tool_call

if TYPE_CHECKING:
    from aiohttp import web

    from commands.context import CommandContext

TOOL_CALL = "/v1/conversations/{conversation_id}/tool-calls/{tool_call_id}"


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


ROUTES: tuple[Route, ...] = (resolve, reschedule)
