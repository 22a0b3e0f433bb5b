"""Whether the process lives and is fit to work: for those who start and watch it, so open to everybody."""

from __future__ import annotations

from typing import Literal

from aiohttp import hdrs, web
from pydantic import BaseModel

from api.answers import json_answer
from api.readiness import standing
from api.routing import Route


class Health(BaseModel):
    """The process answers."""

    status: Literal["ok"] = "ok"


class Readiness(BaseModel):
    """Which of ``log``, ``database`` and ``projections`` are not fit to work, and why.

    `degraded` names read models that are paused or have conversations parked: what they show is old, the rest works.
    """

    status: Literal["ready", "unready"]
    unready: dict[str, str]
    degraded: dict[str, str] = {}


async def healthz(_request: web.Request) -> web.Response:
    """Say that the process answers."""
    return json_answer(Health())


async def readyz(request: web.Request) -> web.Response:
    """Say whether log and database answer and the read models keep up; 503 naming those that don't."""
    found = await standing(request.app)
    readiness = Readiness(
        status="unready" if found.unready else "ready", unready=found.unready, degraded=found.degraded
    )
    return json_answer(readiness, 503, {hdrs.RETRY_AFTER: "1"}) if found.unready else json_answer(readiness)


ROUTES: tuple[Route, ...] = (
    Route(method="GET", path="/healthz", handler=healthz, access="open", answers={200: Health}),
    Route(method="GET", path="/readyz", handler=readyz, access="open", answers={200: Readiness, 503: Readiness}),
)
