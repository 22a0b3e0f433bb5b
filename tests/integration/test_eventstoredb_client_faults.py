"""The faults K1–K7 of EventStoreDB's client: what befalls who uses it as it comes, and that it does not befall us.

What the successor kurrentdbclient has mended is shown with esdbclient only.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing, asynccontextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from domain.event_store import StoreError
from infra.eventstoredb import clients
from infra.eventstoredb.clients import Client, ClientError, NewEvent, RecordedEvent, StreamState
from infra.eventstoredb.store import EventStoreDBEventStore
from tests.contract.samples import caught_up, events, seqs, some_stream, take
from tests.support.eventstoredb import Double, Fault, Security
from tests.support.eventstoredb.fixtures import LONG, server, store
from tests.support.slack import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

__all__ = ["server", "store"]

ESDBCLIENT = find_spec("esdbclient") is not None
mended = pytest.mark.skipif(not ESDBCLIENT, reason="mended in kurrentdbclient")


@asynccontextmanager
async def as_it_comes(uri: str, **arguments: Any) -> AsyncIterator[Client]:
    client = Client(uri, **arguments)
    await client.connect()
    yield client
    await client.close()


def records(count: int) -> list[NewEvent]:
    return [NewEvent(type="user_msg", data=b"{}", id=uuid4()) for _ in range(count)]


@mended
async def test_k1_as_it_comes_a_cancelled_read_passes_for_an_empty_stream(server: Double) -> None:
    async with as_it_comes(server.uri) as client:
        await client.append_to_stream("a", current_version=StreamState.NO_STREAM, events=records(3))
        server.faults.add(Fault("read", "delay", seconds=LONG))
        reading = asyncio.create_task(client.get_stream("a"))
        await server.until(lambda: server.calls["read"] > 0)
        reading.cancel()
        await asyncio.wait({reading})
        assert not reading.cancelled()
        assert reading.result() == ()


async def test_k1_a_cancelled_read_is_cancelled_and_a_timeout_fires(
    server: Double, store: EventStoreDBEventStore
) -> None:
    stream = some_stream()
    await store.append(stream, events(3), 0)
    asked = server.calls["read"]
    server.faults.add(Fault("read", "delay", seconds=LONG), count=2)
    reading = asyncio.create_task(store.read(stream))
    await server.until(lambda: server.calls["read"] > asked)
    reading.cancel()
    await asyncio.wait({reading}, timeout=PATIENCE_S)
    assert reading.cancelled()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await store.read(stream)
    server.faults.clear()  # so short a call may not have come there
    assert seqs(await store.read(stream)) == [1, 2, 3]


async def test_k1_closing_ends_the_live_subscription_in_the_middle_of_its_iteration(server: Double) -> None:
    async with asyncio.timeout(PATIENCE_S), EventStoreDBEventStore(server.uri) as store:
        await caught_up(store.subscribe(0))


async def test_k2_as_it_comes_a_generator_and_one_repeat_lose_the_events_in_silence(server: Double) -> None:
    async with as_it_comes(server.uri) as client:
        server.faults.add(Fault("append", "before"))
        await client.append_to_stream(
            "a", current_version=StreamState.NO_STREAM, events=(record for record in records(3))
        )
        with pytest.raises(ClientError):
            await client.get_stream("a")


async def test_k2_what_is_sent_again_is_sent_whole(server: Double, store: EventStoreDBEventStore) -> None:
    stream = some_stream()
    server.faults.add(Fault("append", "before"))
    await store.append(stream, events(3), 0)
    assert seqs(await store.read(stream)) == [1, 2, 3]
    assert server.faults.left() == ()


@mended
async def test_k3_as_it_comes_one_failing_call_ends_the_subscriptions_and_cuts_the_reads_of_its_client(
    server: Double,
) -> None:
    async def ended(subscription: Any) -> list[RecordedEvent]:
        return [record async for record in subscription]

    async with as_it_comes(server.uri) as client:
        await client.append_to_stream("a", current_version=StreamState.NO_STREAM, events=records(3))
        listening = asyncio.create_task(ended(await client.subscribe_to_all(from_end=True)))
        server.faults.add(Fault("read", "delay", seconds=LONG))
        reading = asyncio.create_task(client.get_stream("a"))
        await server.until(lambda: server.calls["read"] > 0)
        server.faults.add(Fault("append", "before"))
        await client.append_to_stream("b", current_version=StreamState.NO_STREAM, events=records(1))
        async with asyncio.timeout(PATIENCE_S):
            assert await listening == []
            assert await reading == ()


async def test_k3_a_failing_append_leaves_subscriptions_and_reads_alone(
    server: Double, store: EventStoreDBEventStore
) -> None:
    stream = some_stream()
    await store.append(stream, events(3), 0)
    async with aclosing(store.subscribe_stream(stream, 3)) as batches:
        await caught_up(batches)
        server.faults.add(Fault("append", "before"), count=3)
        server.faults.add(Fault("append", "after"))
        await store.append(stream, events(2), 3)
        assert seqs(await take(batches, 2)) == [4, 5]
    assert server.calls["subscribe"] == 1


async def test_k3_a_read_that_is_cut_by_another_one_that_fails_is_read_again(
    server: Double, store: EventStoreDBEventStore
) -> None:
    stream, other = some_stream(), some_stream()
    await store.append(stream, events(3), 0)
    asked = server.calls["read"]
    server.faults.add(Fault("read", "delay", seconds=LONG))
    reading = asyncio.create_task(store.read(stream))
    await server.until(lambda: server.calls["read"] > asked)
    server.faults.add(Fault("read", "before"))
    assert await store.read(other) == []
    async with asyncio.timeout(PATIENCE_S):
        assert seqs(await reading) == [1, 2, 3]


async def test_k3_a_subscription_that_ends_in_silence_is_taken_up_again(
    server: Double, store: EventStoreDBEventStore
) -> None:
    stream = some_stream()
    async with aclosing(store.subscribe_stream(stream, 0)) as batches:
        await caught_up(batches)
        for n, status in enumerate(("UNAVAILABLE", "ABORTED", "CANCELLED", "UNKNOWN", "INTERNAL")):
            server.drop_subscriptions(status)
            await store.append(stream, events(2), 2 * n)
            assert seqs(await take(batches, 2)) == [2 * n + 1, 2 * n + 2]


class Silenced:
    """A relay to a server; what it carries can fall silent without anybody being hung up on."""

    def __init__(self, port: int) -> None:
        self._port, self._ends = port, set[asyncio.Task[None]]()
        self._flows: list[asyncio.Event] = []

    def silence(self) -> None:
        """Let nothing through any more on the connections that there are; new ones work."""
        for flows in self._flows:
            flows.clear()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Take a connection."""
        flows = asyncio.Event()
        flows.set()
        self._flows.append(flows)
        from_server, to_server = await asyncio.open_connection("127.0.0.1", self._port)
        for source, sink in ((reader, to_server), (from_server, writer)):
            self._ends.add(asyncio.create_task(self._pump(source, sink, flows)))

    async def close(self) -> None:
        """Cut all connections."""
        for end in self._ends:
            end.cancel()
        await asyncio.gather(*self._ends, return_exceptions=True)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, flows: asyncio.Event) -> None:
        try:
            while said := await source.read(65536):
                await flows.wait()
                sink.write(said)
                await sink.drain()
        finally:
            sink.close()


@asynccontextmanager
async def relay_to(server: Double) -> AsyncIterator[tuple[Silenced, str]]:
    relay = Silenced(server.port)
    listening = await asyncio.start_server(relay.answer, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    yield relay, f"esdb://127.0.0.1:{port}?Tls=false"
    listening.close()
    await relay.close()


@mended
def test_k4_as_it_comes_the_interval_of_the_connection_string_goes_under_a_name_that_grpc_does_not_know() -> None:
    options = dict(Client("esdb://db?Tls=false&KeepAliveInterval=300").grpc_options)
    assert "grpc.keepalive_time_ms" not in options


async def test_k4_a_line_that_fell_silent_is_noticed_and_replaced(
    server: Double, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert dict(clients.CHANNEL_OPTIONS)["grpc.keepalive_time_ms"] == 5_000
    quick = {"grpc.keepalive_time_ms": 600, "grpc.keepalive_timeout_ms": 600, "grpc.http2.ping_timeout_ms": 600}
    monkeypatch.setattr(clients, "CHANNEL_OPTIONS", tuple({**dict(clients.CHANNEL_OPTIONS), **quick}.items()))
    stream = some_stream()
    async with (
        relay_to(server) as (relay, uri),
        EventStoreDBEventStore(server.uri) as writer,
        EventStoreDBEventStore(uri) as store,
        aclosing(store.subscribe_stream(stream, 0)) as batches,
    ):
        await caught_up(batches)
        relay.silence()
        await writer.append(stream, events(2), 0)
        assert seqs(await take(batches, 2)) == [1, 2]
        assert seqs(await store.read(stream)) == [1, 2]


def test_k5_as_it_comes_a_certificate_that_is_handed_over_is_forgotten() -> None:
    client = Client("esdb://a:b@db", private_key=b"key", certificate_chain=b"chain")
    assert (client.private_key, client.certificate_chain) == (None, None)


def test_k5_a_certificate_is_named_in_the_connection_string(tmp_path: Path) -> None:
    key, chain = tmp_path / "key", tmp_path / "chain"
    key.write_text("key")
    chain.write_text("chain")
    client = clients.new_client(f"esdb://a:b@db?UserKeyFile={key}&UserCertFile={chain}")
    assert (client.private_key, client.certificate_chain) == (b"key", b"chain")


async def test_k6_as_it_comes_the_alternatives_of_a_filter_are_not_anchored(server: Double) -> None:
    async with as_it_comes(server.uri) as client:
        await client.append_to_stream("not-summary-1", current_version=StreamState.NO_STREAM, events=records(1))
        found = await client.read_all(filter_include=["conversation-.*", "summary-.*"], filter_by_stream_name=True)
        assert [record.stream_name async for record in found] == ["not-summary-1"]


async def test_k6_only_streams_that_begin_with_a_prefix_are_read_and_it_means_itself(
    store: EventStoreDBEventStore,
) -> None:
    for stream in ("not-summary-1", "summary-1", "aXb", "a.b", "(a|b", "a+b\\d"):
        await store.append(stream, events(1), 0)

    async def named(*prefixes: str) -> list[str]:
        return [one.stream for one in await store.read_all(0, limit=10, prefixes=prefixes)]

    assert await named("conversation-", "summary-") == ["summary-1"]
    assert await named("a.b", "(a|b", "a+b\\d") == ["a.b", "(a|b", "a+b\\d"]


async def test_k7_as_it_comes_a_password_without_tls_is_kept_back_in_silence() -> None:
    client = Client("esdb://admin:changeit@db?Tls=false")
    assert client.construct_call_credentials("admin", "changeit") is None


async def test_k7_a_password_goes_over_tls_or_is_refused() -> None:
    with pytest.raises(ValueError, match="only over TLS"):
        EventStoreDBEventStore("esdb://admin:changeit@db?Tls=false")


async def test_k7_a_password_with_special_characters_lets_us_in_and_a_wrong_one_is_said_at_once(
    tmp_path: Path,
) -> None:
    authority = tmp_path / "ca.pem"
    async with Double(security=Security({"admin": "p@ss/w:rd %"})) as server:
        assert server._security is not None
        server._security.write_authority(authority)

        def address(password: str) -> str:
            return f"esdb://admin:{password}@127.0.0.1:{server.port}?TlsCaFile={authority}"

        async with EventStoreDBEventStore(address("p%40ss%2Fw%3Ard%20%25")) as store:
            stream = some_stream()
            await store.append(stream, events(2), 0)
            assert seqs(await take(store.subscribe_stream(stream, 0), 2)) == [1, 2]
        async with asyncio.timeout(PATIENCE_S):
            with pytest.raises(StoreError, match="refuses the user or the password"):
                await EventStoreDBEventStore(address("changeit"), patience=PATIENCE_S * 2).__aenter__()
