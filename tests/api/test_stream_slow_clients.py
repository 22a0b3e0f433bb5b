"""Clients that stop reading: cut off, at a bounded cost, and nobody else notices."""

from __future__ import annotations

import asyncio
import re
import select
import socket
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from api.streams.client import CHUNK_BYTES, SEND_BUFFER_BYTES
from api.streams.conversation_stream import WAITING_NEWS
from commands.agent.live import LiveAt
from infra.live_messages import PIECE_CHARS
from tests.support.slack import SLACK_S
from tests.support.stream_nodes import node

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.stream_nodes import Log, Node

EVENT_CHARS = 400_000
UNREAD_BYTES = 8 * SEND_BUFFER_BYTES + CHUNK_BYTES + 2 * EVENT_CHARS
"""What the server and both kernels may hold for a client; kernels take more than they are asked for."""


class Sleeper:
    """A client that asks for a stream and does not read it."""

    def __init__(self, running: Node, path: str) -> None:
        address = urlsplit(running.url)
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self._socket.connect((address.hostname, address.port))
        self._socket.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ada\r\n\r\n".encode())

    async def cut_off(self) -> bytes:
        """Wait until the server hangs up, and return what it had sent."""
        end = select.poll()
        end.register(self._socket, 0)  # errors and hang-ups are always told
        assert await asyncio.to_thread(end.poll, 60_000), "nobody hung up"
        sent = b""
        try:
            while chunk := self._socket.recv(2**20):
                sent += chunk
        except ConnectionResetError:
            return sent
        finally:
            self._socket.close()
        return sent


@pytest.fixture
async def here(database_url: str) -> AsyncIterator[Node]:
    """A node that is soon out of patience, also with who reads: readers of other nodes have time to spare."""
    async with node(database_url, write_s=1.5) as running:
        yield running


async def test_w3_a_client_that_stops_reading_is_cut_off_and_others_notice_nothing(database_url: str, log: Log) -> None:
    path = f"/v1/conversations/{log.id}/stream"
    async with (
        node(database_url, write_s=SLACK_S) as here,
        here.follow(log) as reader,
        here.stream("/v1/stream") as own_reader,
    ):
        sleepers = [Sleeper(here, path) for _ in range(5)] + [Sleeper(here, "/v1/stream") for _ in range(2)]
        for seq in range(2, 52):  # no faster than who reads can take it
            await log.say("x" * EVENT_CHARS)
            for each in (reader, own_reader):
                await each.until("user_msg", seq=seq)
        for sleeper in sleepers:
            assert len(await sleeper.cut_off()) < UNREAD_BYTES
        assert reader.seqs == own_reader.seqs == list(range(1, 52))


async def test_w3_a_client_that_was_cut_off_comes_back_by_its_cursor(here: Node, there: Node, log: Log) -> None:
    for _ in range(50):
        await log.say("x" * EVENT_CHARS)
    sent = await Sleeper(here, f"/v1/conversations/{log.id}/stream").cut_off()
    whole = sent[: sent.rfind(b"\n\n")]
    seen = [int(seq) for seq in re.findall(rb"^id: (\d+)$", whole, re.MULTILINE)]
    assert seen == list(range(1, len(seen) + 1))
    assert len(seen) < 51
    async with there.follow(log, last_event_id=str(len(seen))) as again:
        await again.until("caught_up")
    assert seen + again.seqs == list(range(1, 52))


async def test_w3_deltas_that_a_client_does_not_take_cut_it_off(here: Node, there: Node, log: Log) -> None:
    await log.say()
    await log.add("turn_started", turn=1, answers=["m1"], settings_seq=1)
    path = f"/v1/conversations/{log.id}/stream"
    async with there.follow(log) as reader:
        await reader.until("caught_up")
        sleeping = asyncio.create_task(Sleeper(here, path).cut_off())
        heard = said = 0
        while not sleeping.done():  # no faster than who reads can take it
            here.live.publish(LiveAt(log.id, 1, 1, 1, 1), "text", "y" * PIECE_CHARS * (WAITING_NEWS // 8))
            said += PIECE_CHARS * (WAITING_NEWS // 8)
            while heard < said:
                news = await reader.next()
                assert news is not None
                if news["event"] in ("partial", "delta") and news["data"]["kind"] == "text":
                    heard = len(news["data"]["text"]) + (heard if news["event"] == "delta" else 0)
        assert len(await sleeping) < UNREAD_BYTES
        await log.reply(1)
        await reader.until("assistant_msg")
