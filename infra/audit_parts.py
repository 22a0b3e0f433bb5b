"""What a model was asked, taken apart for the audit: equal parts have equal hashes, and hooks may redact messages."""

from __future__ import annotations

import asyncio
import copy
import logging
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

from commands.agent.user_run import called, ended_within
from domain.provider_messages import stubbed
from domain.wire import dumps

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from uuid import UUID

    from commands.agent.audit import CallAbout
    from commands.agent.model import ModelRequest
    from domain.hooks import Hook
    from domain.provider_messages import ProviderMessage

logger = logging.getLogger(__name__)


class Note(NamedTuple):
    """A try of a model call that has begun."""

    call: UUID
    about: CallAbout
    number: int
    request: ModelRequest
    began_at: datetime


class Part(NamedTuple):
    """A piece of a request: its JSON, and the hash of it."""

    hash: bytes
    body: str


class Prepared(NamedTuple):
    """A note whose request was taken apart; of results of calls, by their ids, which were left out, and which cut."""

    note: Note
    messages: list[Part]
    tools: Part
    params: Part
    left_out: list[str]
    cut_off: list[str]
    redacted: bool


async def prepared(note: Note, redacting: Sequence[Hook] = ()) -> Prepared:
    """Take a request apart, in a thread; what hooks fail to redact is not kept."""
    messages: Sequence[Any] = note.request.messages
    for hook in redacting:
        messages = await _redacted(messages, hook)
    return await asyncio.to_thread(_prepared, note, messages, redacted=bool(redacting))


def _prepared(note: Note, messages: Sequence[ProviderMessage], *, redacted: bool) -> Prepared:
    request = note.request
    left_out, cut_off = stubbed(request.messages)
    return Prepared(
        note,
        [_part(message) for message in messages],
        _part(list(request.tools)),
        _part(dict(request.params)),
        left_out,
        cut_off,
        redacted,
    )


def _part(value: Any) -> Part:
    raw = dumps(value).encode(errors="replace")
    return Part(sha256(raw).digest(), raw.decode())


async def _redacted(messages: Sequence[ProviderMessage], hook: Hook) -> list[ProviderMessage]:
    def redact() -> list[ProviderMessage]:
        return [_checked(hook.function(copy.deepcopy(message))) for message in messages]

    work = called(redact, is_async=False, name=f"hook-{hook.name}")
    task = await ended_within(hook.timeout_s, work, name=f"hook {hook.name}")
    failure = TimeoutError() if task is None else asyncio.CancelledError() if task.cancelled() else task.exception()
    if task is not None and failure is None:
        redacted: list[ProviderMessage] = task.result()
        return redacted
    logger.error("the hook %s failed", hook.name, exc_info=failure, extra={"action": "hook_failed", "hook": hook.name})
    instead = f"[Not kept: the hook {hook.name} failed ({type(failure).__name__}).]"
    return [{"role": message["role"], "content": instead} for message in messages]


def _checked(redacted: Any) -> ProviderMessage:
    if not isinstance(redacted, dict):
        raise TypeError(f"a redacted message is a dict, not {type(redacted).__name__}")
    return redacted
