"""The server of the double: EventStoreDB's gRPC services over one log, which can be stopped and started again."""

from __future__ import annotations

import asyncio
import random
import socket
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar

import grpc
import grpc.aio

from tests.support.eventstoredb import reads, subscriptions
from tests.support.eventstoredb.faults import Call, Faults
from tests.support.eventstoredb.log import Log
from tests.support.eventstoredb.refusals import Refused
from tests.support.eventstoredb.stubs import gossip_pb2, shared_pb2, streams_pb2
from tests.support.eventstoredb.writes import MAX_APPEND_BYTES, Writes, before
from tests.support.slack import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
    from pathlib import Path

    from tests.support.eventstoredb.faults import Fault
    from tests.support.eventstoredb.log import Receipt
    from tests.support.eventstoredb.security import Security

Request = TypeVar("Request")
Answer = TypeVar("Answer")

MAX_REQUEST_BYTES = 16 * 1024 * 1024 - 10_000
OPTIONS = (
    ("grpc.max_receive_message_length", MAX_REQUEST_BYTES),
    ("grpc.so_reuseport", 0),
    # gRPC's own server hangs up on clients that ping often; EventStoreDB's does not
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 500),
    ("grpc.http2.max_ping_strikes", 0),
)


def _lasting_port() -> int:
    """Find a free port that the system gives to nobody who asks for any: it must still be free after a restart."""
    while True:
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port := random.randrange(20_000, 32_000)))
            return port


class Double:
    """A single node on a port of 127.0.0.1: ``async with Double() as server: server.uri``.

    `path` keeps the log beyond the process; without it, as long as the object. `calls` counts what was asked, `delayed`
    are the appends that a fault holds up, answered or not.
    """

    def __init__(
        self,
        *,
        port: int = 0,
        path: Path | None = None,
        security: Security | None = None,
        max_append: int = MAX_APPEND_BYTES,
    ) -> None:
        self.log, self.faults, self.port = Log(path), Faults(), port or _lasting_port()
        self.calls: Counter[Call] = Counter()
        self.delayed: set[asyncio.Task[Receipt]] = set()
        self._security, self._max_append = security, max_append
        self._server: grpc.aio.Server | None = None

    @property
    def uri(self) -> str:
        """The connection string; with passwords it names the first user and has no certificate authority yet."""
        if self._security is None:
            return f"esdb://127.0.0.1:{self.port}?Tls=false"
        name, word = next(iter(self._security.users.items()))
        return f"esdb://{name}:{word}@127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()
        self.log.close()

    async def start(self) -> None:
        """Listen, on the port of before if there was one."""
        server = grpc.aio.server(options=OPTIONS)
        address = f"127.0.0.1:{self.port}"
        if self._security is None:
            self.port = server.add_insecure_port(address)
        else:
            self.port = server.add_secure_port(address, self._security.credentials())
        server.add_generic_rpc_handlers(self._services())
        await server.start()
        self._server = server

    async def stop(self) -> None:
        """Break off every call and stop listening."""
        if self._server is not None:
            await self._server.stop(grace=None)
            self._server = None

    async def restart(self, down_s: float = 0) -> None:
        """Stop, and start again after so many seconds: with what was acknowledged, without what was in memory."""
        await self.stop()
        await asyncio.sleep(down_s)
        self.log.restarted()
        await self.start()

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until something holds, of what it counts, keeps or has yet to do wrong."""
        async with asyncio.timeout(PATIENCE_S):
            while not holds():  # noqa: ASYNC110 - a double tells nobody
                await asyncio.sleep(0.01)

    def drop_subscriptions(self, status: str = "UNAVAILABLE") -> None:
        """End all subscriptions that wait for more, with this gRPC status."""
        for waiting in tuple(self.log.waiting):
            waiting.drop(Refused(status, "injected: the subscription was dropped"))

    def _services(self) -> tuple[grpc.GenericRpcHandler, ...]:
        writes = Writes(self.log, self.faults, self.delayed, self.port, self._max_append)
        streams: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            "BatchAppend": grpc.stream_stream_rpc_method_handler(
                self._many(writes.batch_append, "append"),
                streams_pb2.BatchAppendReq.FromString,
                streams_pb2.BatchAppendResp.SerializeToString,
            ),
            "Delete": grpc.unary_unary_rpc_method_handler(
                self._one(writes.delete, "delete"),
                streams_pb2.DeleteReq.FromString,
                streams_pb2.DeleteResp.SerializeToString,
            ),
            "Tombstone": grpc.unary_unary_rpc_method_handler(
                self._one(writes.tombstone, "delete"),
                streams_pb2.TombstoneReq.FromString,
                streams_pb2.TombstoneResp.SerializeToString,
            ),
            "Read": grpc.unary_stream_rpc_method_handler(
                self._many(self._read, None), streams_pb2.ReadReq.FromString, streams_pb2.ReadResp.SerializeToString
            ),
        }
        gossip = {
            "Read": grpc.unary_unary_rpc_method_handler(
                self._one(self._gossip, "gossip"),
                shared_pb2.Empty.FromString,
                gossip_pb2.ClusterInfo.SerializeToString,
            )
        }
        return (
            grpc.method_handlers_generic_handler("event_store.client.streams.Streams", streams),
            grpc.method_handlers_generic_handler("event_store.client.gossip.Gossip", gossip),
        )

    async def _read(self, request: streams_pb2.ReadReq, *, allowed: bool) -> AsyncIterator[streams_pb2.ReadResp]:
        options = request.options
        subscribing = options.WhichOneof("count_option") == "subscription"
        of_stream = options.WhichOneof("stream_option") == "stream"
        call: Call = "subscribe" if subscribing else "read"
        self.calls[call] += 1
        fault = self.faults.take(call)
        await before(fault, self.port)
        if not allowed:
            raise Refused("PERMISSION_DENIED", "Access Denied", ("exception", "access-denied"))
        reads.check(options)
        if subscribing:
            subscribe = subscriptions.subscribe_stream if of_stream else subscriptions.subscribe_all
            answers = subscribe(self.log, options)
        else:
            answers = _each((reads.read_stream if of_stream else reads.read_all)(self.log, options))
        async for answer in _until(answers, fault):
            yield answer

    async def _gossip(self, request: shared_pb2.Empty, *, allowed: bool) -> gossip_pb2.ClusterInfo:
        await before(self.faults.take("gossip"), self.port)
        address = gossip_pb2.EndPoint(address="127.0.0.1", port=self.port)
        leader = gossip_pb2.MemberInfo(state=gossip_pb2.MemberInfo.Leader, is_alive=True, http_end_point=address)
        return gossip_pb2.ClusterInfo(members=[leader])

    def _one(self, work: Callable[..., Awaitable[Answer]], call: Call) -> Callable[..., Awaitable[Answer]]:
        async def answered(request: Request, context: grpc.aio.ServicerContext[Request, Answer]) -> Answer:
            self.calls[call] += 1
            try:
                return await work(request, allowed=self._allows(context))
            except Refused as refused:
                await _abort(context, refused)

        return answered

    def _many(
        self, work: Callable[..., AsyncIterator[Answer]], call: Call | None
    ) -> Callable[..., AsyncIterator[Answer]]:
        async def answered(
            request: Request, context: grpc.aio.ServicerContext[Request, Answer]
        ) -> AsyncIterator[Answer]:
            if call is not None:
                self.calls[call] += 1
            try:
                async for answer in work(request, allowed=self._allows(context)):
                    yield answer
            except Refused as refused:
                await _abort(context, refused)

        return answered

    def _allows(self, context: grpc.aio.ServicerContext[Request, Answer]) -> bool:
        return self._security is None or self._security.allows(context.invocation_metadata())


async def _each(answers: Iterator[streams_pb2.ReadResp]) -> AsyncIterator[streams_pb2.ReadResp]:
    for answer in answers:
        yield answer


async def _until(
    answers: AsyncIterator[streams_pb2.ReadResp], fault: Fault | None
) -> AsyncIterator[streams_pb2.ReadResp]:
    given = 0
    async for answer in answers:
        if fault is not None and fault.kind == "after" and given >= fault.responses:
            break
        yield answer
        given += 1
    if fault is not None and fault.kind == "after":
        raise Refused(fault.status, f"injected after {given} responses")


async def _abort(context: grpc.aio.ServicerContext[Request, Answer], refused: Refused) -> NoReturn:
    await context.abort(grpc.StatusCode[refused.status], refused.details, refused.trailers)
