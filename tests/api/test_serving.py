"""Listening and stopping: nobody is cut off, and what is no HTTP leaves no trace."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import aiohttp
import pytest
from aiohttp import web

from api.server import listening

if TYPE_CHECKING:
    from tests.api.conftest import Api


async def test_a_request_under_way_is_answered_before_the_server_stops() -> None:
    arrived, may_go = asyncio.Event(), asyncio.Event()

    async def slow(_request: web.Request) -> web.Response:
        arrived.set()
        await may_go.wait()
        return web.Response(text="done")

    async def let_go(_app: web.Application) -> None:
        may_go.set()

    app = web.Application()
    app.router.add_get("/", slow)
    app.on_shutdown.append(let_go)
    async with aiohttp.ClientSession() as session:
        async with listening(app, "127.0.0.1", 0) as url:
            asked = asyncio.create_task(session.get(url))
            await arrived.wait()
        assert (await (await asked).text()) == "done"
        with pytest.raises(aiohttp.ClientConnectorError):
            await session.get(url)


async def test_a_taken_address_is_an_error() -> None:
    async with listening(web.Application(), "127.0.0.1", 0) as url:
        with pytest.raises(OSError, match="address already in use"):
            async with listening(web.Application(), "127.0.0.1", int(url.rpartition(":")[2])):
                pass


async def test_what_is_no_http_is_refused_without_repeating_it_in_the_log(
    api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)

    for nonsense in (b"GET / HTTP/1.1\r\nAuthorization: Bearer s3cret\x00\r\n\r\n", b"\x16\x03\x01 s3cret\r\n\r\n"):
        reader, writer = await asyncio.open_connection("127.0.0.1", int(api.url.rpartition(":")[2]))
        writer.write(nonsense)
        assert b" 400 " in await reader.readline()
        writer.close()
        await writer.wait_closed()

    assert "s3cret" not in caplog.text
    assert "Traceback" not in caplog.text
