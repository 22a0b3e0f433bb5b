"""Conversations: start, find, change, cancel and end them."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal
from uuid import UUID

from aiohttp import hdrs, web
from pydantic import BaseModel, Field

from api.answers import Accepted, accepted, json_answer
from api.endpoints import command, query
from api.pages import Freshness, PageOf, PageQuery
from api.reading import reading
from api.resources import resources
from api.routing import Route, conversation_id_of
from commands.cancel import Cancel
from commands.cancel import cancel as cancel_conversation
from commands.change_conversation import ChangeConversation, change_conversation
from commands.create_conversation import CreateConversation, create_conversation
from commands.end_conversation import EndConversation, end_conversation
from projections.conversations import get_conversation, list_conversations

if TYPE_CHECKING:
    from commands.context import CommandContext
    from domain.scope import Scope

CONVERSATIONS = "/v1/conversations"
CONVERSATION = f"{CONVERSATIONS}/{{conversation_id}}"

Status = Literal["active", "suspended", "idle", "ended"]


class Created(Accepted):
    """A new conversation; the last two fields are those of its first message, if it came with one."""

    message_id: str | None = None
    queued: int | None = None


class Cancelled(Accepted):
    """Whether anything was running or waiting."""

    cancelled: bool


class ConversationsQuery(PageQuery):
    """Conversations of this status, None for all; with `q` those in whose title or in one message it is found.

    `q` is as for search engines: words that all occur, "a phrase", or, -without.
    """

    status: Status | None = None
    q: Annotated[str, Field(max_length=1000)] | None = None


class UsageTotal(BaseModel):
    """Tokens and cost over all model calls; `cost_usd` is null until one is reported."""

    calls: int
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    cost_usd: float | None


class FsmState(BaseModel):
    """What the conversation waited for when it last came to rest, at `last_seq`: `status` is what it does now."""

    state: Literal["idle", "awaiting_input"]
    pending: dict[str, dict[str, Any]]
    last_seq: int


class ConversationItem(BaseModel):
    """A conversation as its read model has it."""

    id: UUID
    conversation_id: UUID
    title: str | None
    status: Status
    settings: dict[str, Any]
    metadata: dict[str, Any]
    tenant: str
    owner: str
    forked_from: UUID | None
    forked_seq: int | None
    fsm_state: FsmState | None
    usage: UsageTotal
    last_seq: int
    created_at: datetime
    updated_at: datetime


class ForkItem(BaseModel):
    """Another conversation that begins as this one does, up to `forked_seq`."""

    conversation_id: UUID
    title: str | None
    forked_seq: int
    created_at: datetime


class ConversationWhole(ConversationItem):
    """A conversation, and the newest of those that were forked from it."""

    forks: list[ForkItem]


@command("POST", CONVERSATIONS, CreateConversation, answers={201: Created})
async def create(request: web.Request, body: CreateConversation, context: CommandContext) -> web.Response:
    """Start a conversation, with its first message if one is given."""
    have = resources(request)
    receipt = await create_conversation(have.conversations, have.toolset, body, context, hooks=have.hooks)
    return accepted(receipt, 201, {hdrs.LOCATION: f"{CONVERSATIONS}/{receipt.conversation_id}"})


@query(CONVERSATIONS, ConversationsQuery, answer=PageOf[ConversationItem])
async def list_all(request: web.Request, asked: ConversationsQuery, scope: Scope) -> web.Response:
    """List the caller's conversations (an admin's: the tenant's), newest activity first.

    `q` searches titles and what was said, as search engines do: all words in one message, "a phrase", or, -without.
    """
    read_models = ("conversations", "display_messages") if asked.q else ("conversations",)
    async with reading(request, asked, *read_models) as connection:
        page = await list_conversations(
            connection, scope, status=asked.status, q=asked.q, cursor=asked.cursor, limit=asked.limit
        )
    return json_answer(page)


@query(CONVERSATION, Freshness, answer=ConversationWhole)
async def get(request: web.Request, asked: Freshness, scope: Scope) -> web.Response:
    """Look at a conversation."""
    async with reading(request, asked, "conversations") as connection:
        found = await get_conversation(connection, scope, conversation_id_of(request))
    return json_answer(found)


@command("PATCH", CONVERSATION, ChangeConversation, answers={200: Accepted})
async def change(request: web.Request, body: ChangeConversation, context: CommandContext) -> web.Response:
    """Change title, settings and metadata by a JSON merge patch; settings act from the next turn."""
    have = resources(request)
    conversation_id = conversation_id_of(request)
    return accepted(
        await change_conversation(have.conversations, have.toolset, conversation_id, body, context, hooks=have.hooks)
    )


@command("POST", f"{CONVERSATION}/cancel", Cancel, answers={202: Cancelled, 200: Cancelled})
async def cancel(request: web.Request, body: Cancel, context: CommandContext) -> web.Response:
    """Stop what runs and what waits."""
    have = resources(request)
    receipt = await cancel_conversation(have.conversations, have.partials, conversation_id_of(request), body, context)
    return accepted(receipt, 202 if receipt.answer["cancelled"] else 200)


@command("POST", f"{CONVERSATION}/end", EndConversation, answers={200: Accepted})
async def end(request: web.Request, body: EndConversation, context: CommandContext) -> web.Response:
    """End a conversation; it stays readable and accepts nothing more."""
    have = resources(request)
    return accepted(
        await end_conversation(have.conversations, have.partials, conversation_id_of(request), body, context)
    )


ROUTES: tuple[Route, ...] = (create, list_all, get, change, cancel, end)
