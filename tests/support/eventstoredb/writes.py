"""The calls of the double that write: BatchAppend, Delete and Tombstone."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING
from uuid import UUID

from google.protobuf import empty_pb2

from tests.support.eventstoredb.log import ANY, EXISTS, NO_STREAM, Deleted, Log, Proposed, Receipt, WrongVersion
from tests.support.eventstoredb.refusals import (
    ALREADY,
    DENIED,
    INVALID,
    NOT_FOUND,
    Refused,
    failed,
    not_leader,
    stream_deleted,
    wrong_version,
    wrong_version_of_delete,
)
from tests.support.eventstoredb.stubs import shared_pb2, streams_pb2

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.eventstoredb.faults import Fault, Faults

WRITE_TIMEOUT_S = 2.0
MAX_APPEND_BYTES = 1024 * 1024
"""The server's default up to 24.10."""


class Writes:
    """Appends and deletions; `max_append` bounds one append, in bytes of its events."""

    def __init__(
        self, log: Log, faults: Faults, delayed: set[asyncio.Task[Receipt]], port: int, max_append: int
    ) -> None:
        self._log, self._faults, self._delayed, self._port, self._max_append = log, faults, delayed, port, max_append

    async def batch_append(
        self, requests: AsyncIterator[streams_pb2.BatchAppendReq], *, allowed: bool
    ) -> AsyncIterator[streams_pb2.BatchAppendResp]:
        """Answer each append of a call: what goes wrong with one is said in its answer."""
        pending: dict[str, tuple[streams_pb2.BatchAppendReq.Options, list[Proposed]]] = {}
        async for request in requests:
            key = request.correlation_id.string
            answer = streams_pb2.BatchAppendResp(correlation_id=request.correlation_id)
            if request.HasField("options"):
                pending[key] = request.options, []
            if key not in pending:
                continue
            options, events = pending[key]
            answer.stream_identifier.CopyFrom(options.stream_identifier)
            problem: streams_pb2.BatchAppendResp | None
            try:
                events += map(_proposed, request.proposed_messages)
            except (KeyError, ValueError) as error:
                problem = failed(answer, shared_pb2.BadRequest(message=str(error)), INVALID)
            else:
                problem = self._refusal(answer, options, events, allowed=allowed)
            if problem is not None:
                del pending[key]
                yield problem
            elif request.is_final:
                del pending[key]
                yield await self._append(answer, options, events)

    async def delete(self, request: streams_pb2.DeleteReq, *, allowed: bool) -> streams_pb2.DeleteResp:
        """Soft-delete a stream."""
        position = await self._delete(request.options, hard=False)
        place = streams_pb2.DeleteResp.Position(commit_position=position, prepare_position=position)
        return streams_pb2.DeleteResp(position=place)

    async def tombstone(self, request: streams_pb2.TombstoneReq, *, allowed: bool) -> streams_pb2.TombstoneResp:
        """Delete a stream for good."""
        position = await self._delete(request.options, hard=True)
        place = streams_pb2.TombstoneResp.Position(commit_position=position, prepare_position=position)
        return streams_pb2.TombstoneResp(position=place)

    def _refusal(
        self,
        answer: streams_pb2.BatchAppendResp,
        options: streams_pb2.BatchAppendReq.Options,
        events: list[Proposed],
        *,
        allowed: bool,
    ) -> streams_pb2.BatchAppendResp | None:
        if not allowed:
            return failed(answer, shared_pb2.AccessDenied(), DENIED)
        if _deadline(options) <= 0:
            return failed(answer, shared_pb2.Timeout())
        if sum(len(one.data) + len(one.metadata) + 2 * len(one.type) for one in events) > self._max_append:
            return failed(answer, shared_pb2.MaximumAppendSizeExceeded(maxAppendSize=self._max_append), INVALID)
        return None

    async def _append(
        self,
        answer: streams_pb2.BatchAppendResp,
        options: streams_pb2.BatchAppendReq.Options,
        events: list[Proposed],
    ) -> streams_pb2.BatchAppendResp:
        fault = self._faults.take("append")
        if fault is not None and fault.kind == "not_ready":  # the server packs this one into the answer
            return failed(answer, empty_pb2.Empty(), text="Server Is Not Ready")
        stream, expected = options.stream_identifier.stream_name.decode(), _expected(options)
        try:
            if fault is not None:
                receipt = await self._suffer(fault, stream, expected, events, _deadline(options))
            else:
                receipt = self._log.append(stream, expected, events)
        except Deleted:
            gone = shared_pb2.StreamDeleted(stream_identifier=options.stream_identifier)
            return failed(answer, gone, NOT_FOUND)
        except WrongVersion as found:
            return failed(answer, wrong_version(expected, found), ALREADY)
        except TimeoutError:
            return failed(answer, shared_pb2.Timeout())
        if receipt.number >= 0:
            answer.success.current_revision = receipt.number
        else:
            answer.success.no_stream.SetInParent()
        if receipt.position >= 0:
            answer.success.position.commit_position = answer.success.position.prepare_position = receipt.position
        else:
            answer.success.no_position.SetInParent()
        return answer

    async def _suffer(
        self, fault: Fault, stream: str, expected: int, events: list[Proposed], deadline: float
    ) -> Receipt:
        if fault.kind == "before":
            raise Refused(fault.status, "injected before the write")
        if fault.kind == "not_leader":
            raise not_leader("127.0.0.1", self._port)
        if fault.kind == "after":
            self._log.append(stream, expected, events)
            raise Refused(fault.status, "injected after the write")
        writing = asyncio.create_task(self._append_late(fault.seconds, stream, expected, events))
        self._delayed.add(writing)
        writing.add_done_callback(self._delayed.discard)
        return await asyncio.wait_for(asyncio.shield(writing), deadline)

    async def _append_late(self, seconds: float, stream: str, expected: int, events: list[Proposed]) -> Receipt:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._faults.hurried.wait()
        return self._log.append(stream, expected, events)

    async def _delete(
        self, options: streams_pb2.DeleteReq.Options | streams_pb2.TombstoneReq.Options, *, hard: bool
    ) -> int:
        fault = self._faults.take("delete")
        stream = options.stream_identifier.stream_name.decode()
        expected = options.revision
        if (named := options.WhichOneof("expected_stream_revision")) != "revision":
            expected = {"no_stream": NO_STREAM, "any": ANY, "stream_exists": EXISTS}[named or "any"]
        await before(fault, self._port)
        try:
            position = self._log.delete(stream, expected, hard=hard)
        except Deleted:
            raise stream_deleted(stream) from None
        except WrongVersion as found:
            raise wrong_version_of_delete(stream, expected, found.actual) from None
        if fault is not None and fault.kind == "after":
            raise Refused(fault.status, "injected after the write")
        return position


async def before(fault: Fault | None, port: int) -> None:
    """Suffer what comes before the work of a call; `Refused` if that ends it."""
    if fault is None:
        return
    if fault.kind == "delay":
        await asyncio.sleep(fault.seconds)
    elif fault.kind == "not_ready":
        raise Refused("UNAVAILABLE", "Server Is Not Ready")
    elif fault.kind == "not_leader":
        raise not_leader("127.0.0.1", port)
    elif fault.kind == "before":
        raise Refused(fault.status, "injected before anything was done")


def _proposed(message: streams_pb2.BatchAppendReq.ProposedMessage) -> Proposed:
    if missing := {"type", "content-type"} - set(message.metadata):
        raise KeyError(f"Required Metadata Property '{min(missing)}' is missing")
    is_json = message.metadata["content-type"] == "application/json"
    return Proposed(UUID(message.id.string), message.metadata["type"], is_json, message.data, message.custom_metadata)


def _deadline(options: streams_pb2.BatchAppendReq.Options) -> float:
    if options.WhichOneof("deadline_option") != "deadline":
        return WRITE_TIMEOUT_S
    asked: float = options.deadline.seconds + options.deadline.nanos / 1e9
    return min(asked, WRITE_TIMEOUT_S)


def _expected(options: streams_pb2.BatchAppendReq.Options) -> int:
    named = options.WhichOneof("expected_stream_position")
    if named == "stream_position":
        return options.stream_position
    return {"no_stream": NO_STREAM, "any": ANY, "stream_exists": EXISTS}[named or "any"]
