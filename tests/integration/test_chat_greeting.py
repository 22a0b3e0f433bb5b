"""What `chat` makes of the first answer of a server."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from api.cli.failures import CommandFailed
from api.cli.remote import Remote

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@asynccontextmanager
async def answering(status: int) -> AsyncIterator[Remote]:
    """Run a server that answers everything with a problem of this status."""

    async def answer(_: web.Request) -> web.Response:
        return web.json_response({"title": "No."}, status=status, headers={"Retry-After": "1"})

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    async with TestServer(app) as server, aiohttp.ClientSession() as session:
        yield Remote(session, str(server.make_url("/")), None)


async def test_a_server_whose_list_is_being_rebuilt_can_be_talked_with() -> None:
    async with answering(503) as remote:
        await remote.greet()


@pytest.mark.parametrize(("status", "said"), [(401, "does not know this key"), (404, "does not answer as Rejoinder")])
async def test_who_cannot_be_talked_with_is_said(status: int, said: str) -> None:
    async with answering(status) as remote:
        with pytest.raises(CommandFailed, match=said):
            await remote.greet()
