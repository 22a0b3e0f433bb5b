"""Whether the process lives and is fit to work: for those who start and watch it, so open to everybody."""

from __future__ import annotations

from typing import Literal

from aiohttp import hdrs, web
from pydantic import BaseModel

from api.answers import json_answer
from api.readiness import standing
from api.resources import resources
from api.routing import Route


class Health(BaseModel):
    """The process answers."""

    status: Literal["ok"] = "ok"


class Readiness(BaseModel):
    """Which of ``log``, ``database`` and ``projections`` are not fit to work, and why."""

    status: Literal["ready", "unready"]
    unready: dict[str, str]


async def healthz(_request: web.Request) -> web.Response:
    """Say that the process answers."""
    return json_answer(Health())


async def readyz(request: web.Request) -> web.Response:
    """Say whether log and database answer and the read models keep up; 503 naming those that don't."""
    if unready := (await standing(resources(request))).unready:
        return json_answer(Readiness(status="unready", unready=unready), 503, {hdrs.RETRY_AFTER: "1"})
    return json_answer(Readiness(status="ready", unready={}))


ROUTES: tuple[Route, ...] = (
    Route(method="GET", path="/healthz", handler=healthz, access="open", answers={200: Health}),
    Route(method="GET", path="/readyz", handler=readyz, access="open", answers={200: Readiness, 503: Readiness}),
)
