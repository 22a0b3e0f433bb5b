"""Model calls as they really were, where the audit is on: what was sent, and what became of it."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID

from aiohttp import web
from pydantic import BaseModel, Field

from api.answers import json_answer
from api.endpoints import query
from api.errors import NotFound
from api.pages import Freshness, PageOf, PageQuery
from api.reading import reading
from api.routing import Route, conversation_id_of
from infra.audit_reading import ModelCallNotFound, model_calls_of, request_of

if TYPE_CHECKING:
    from domain.scope import Scope

MODEL_CALLS = "/v1/conversations/{conversation_id}/model-calls"


class SummaryUsed(BaseModel):
    """Which summary stood for the conversation up to `to_seq`, or was updated; `version` is that of its form."""

    to_seq: int
    version: int


class InjectedContext(BaseModel):
    """What a hook added to the request, which is among its last messages: about so many tokens."""

    hook: str
    tokens: int


class ModelCallItem(BaseModel):
    """One try of a model call; `attempt` is the turn's holder, `try` his run of that call.

    `outcome` is null while it runs, and for ever if its process died in the middle of it. `left_out` and `cut_off` name
    the tool calls whose results were not shown, or not whole. `redacted`: hooks changed what is kept of the messages.
    """

    id: UUID
    conversation_id: UUID
    purpose: Literal["turn", "compaction", "title"]
    turn: int | None
    step: int | None
    attempt: int | None
    number: int = Field(serialization_alias="try")
    model: str
    messages: int
    context_seq: int | None
    summary: SummaryUsed | None
    injected: list[InjectedContext]
    left_out: list[str]
    cut_off: list[str]
    redacted: bool
    began_at: datetime
    outcome: Literal["ok", "failed", "cancelled"] | None
    reason: str | None
    finish_reason: str | None
    usage: dict[str, Any] | None
    latency_ms: int | None


class ExactRequest(BaseModel):
    """What the model was asked, in the format of OpenAI's chat completions; its parameters are fields of their own."""

    model: str
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]] = []


@query(MODEL_CALLS, PageQuery, answer=PageOf[ModelCallItem])
async def list_model_calls(request: web.Request, asked: PageQuery, scope: Scope) -> web.Response:
    """List the tries of model calls by turn, step, attempt and try; those for summaries and titles come last."""
    async with reading(request, asked, "conversations") as connection:
        page = await model_calls_of(
            connection, scope, conversation_id_of(request), cursor=asked.cursor, limit=asked.limit
        )
    return json_answer(page)


@query(f"{MODEL_CALLS}/{{model_call_id}}/request", Freshness, answer=ExactRequest)
async def get_model_request(request: web.Request, asked: Freshness, scope: Scope) -> web.Response:
    """Get the exact request of a try, its messages, tools and parameters byte for byte."""
    try:
        model_call_id = UUID(request.match_info["model_call_id"])
    except ValueError:
        raise NotFound from None
    async with reading(request, asked, "conversations") as connection:
        try:
            sent = await request_of(connection, scope, conversation_id_of(request), model_call_id)
        except ModelCallNotFound:
            raise NotFound from None
    return web.Response(body=sent.raw, content_type="application/json")


ROUTES: tuple[Route, ...] = (list_model_calls, get_model_request)
