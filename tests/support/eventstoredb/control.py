"""The stand-alone double is asked over HTTP for what it shall do wrong; this is both ends of that."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import aiohttp
from aiohttp import web

from tests.support.eventstoredb.faults import Fault

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.eventstoredb.double import Double


class Control:
    """Asks a double in another process for faults; its methods are those of `Double` and `Faults`."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def add(self, fault: Fault, count: int = 1) -> None:
        """Let the next `count` calls of the fault's kind suffer it."""
        await self._ask("POST", "/faults", {"fault": asdict(fault), "count": count})

    async def clear(self) -> None:
        """Forget the faults that are left."""
        await self._ask("DELETE", "/faults")

    async def standing(self) -> dict[str, Any]:
        """Return `calls` by kind, the number of `faults` left and of `subscriptions`, and the log's `records`."""
        return dict(await self._ask("GET", "/"))

    async def restart(self, down_s: float = 0) -> None:
        """Restart the gRPC server; returns when it listens again."""
        await self._ask("POST", "/restart", {"down_s": down_s})

    async def drop_subscriptions(self, status: str = "UNAVAILABLE") -> None:
        """End all subscriptions that wait for more."""
        await self._ask("POST", "/drop", {"status": status})

    async def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        async with (
            aiohttp.ClientSession(raise_for_status=True) as session,
            session.request(method, self._url + path, json=body) as answer,
        ):
            return await answer.json()


@asynccontextmanager
async def controlled(double: Double) -> AsyncIterator[str]:
    """Serve the control of a double; yields its URL."""

    async def standing(_: web.Request) -> web.Response:
        faults, subscriptions = len(double.faults.left()), len(double.log.waiting)
        counted = {"faults": faults, "subscriptions": subscriptions, "records": len(double.log.records)}
        return web.json_response({"calls": double.calls} | counted)

    async def add(request: web.Request) -> web.Response:
        body = await request.json()
        double.faults.add(Fault(**body["fault"]), body["count"])
        return await standing(request)

    async def clear(request: web.Request) -> web.Response:
        double.faults.clear()
        return await standing(request)

    async def restart(request: web.Request) -> web.Response:
        # shielded: an asker that goes away leaves no half-started server
        await asyncio.shield(double.restart(**await request.json()))
        return await standing(request)

    async def drop(request: web.Request) -> web.Response:
        double.drop_subscriptions(**await request.json())
        return await standing(request)

    app = web.Application()
    app.add_routes([web.get("/", standing), web.post("/faults", add), web.delete("/faults", clear)])
    app.add_routes([web.post("/restart", restart), web.post("/drop", drop)])
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
