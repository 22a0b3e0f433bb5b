"""What the audit has kept of model calls: their list, and each exact request put together again, byte for byte."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, LiteralString, NamedTuple
from uuid import UUID

from domain.wire import dumps
from projections.paging import Page, checked_limit, decode_cursor, encode_cursor, read_seq, read_time
from projections.reading import fetch
from projections.visibility import require_readable

if TYPE_CHECKING:
    from psycopg import AsyncConnection

    from domain.scope import Scope

_LAST = 2**31 - 1
"""Stands for the turn, step and attempt of calls that belong to none, which come last."""
_ORDER: LiteralString = (
    f"coalesce(turn, {_LAST}), coalesce(step, {_LAST}), coalesce(attempt, {_LAST}), try, began_at, id"
)
_LIST: LiteralString = f"""
select id, conversation_id, purpose, turn, step, attempt, try, model, cardinality(messages) as messages, context_seq,
    case when summary_to_seq is not null
        then json_build_object('to_seq', summary_to_seq, 'version', summary_version) end as summary,
    injected, left_out, cut_off, redacted, began_at, outcome, reason, finish_reason, usage, latency_ms
from model_calls
where conversation_id = %(id)s
    and (%(first)s or ({_ORDER}) > (%(turn)s, %(step)s, %(attempt)s, %(try)s, %(began_at)s, %(call)s))
order by {_ORDER} limit %(limit)s
"""
_PARTS: LiteralString = """
select c.model, c.redacted, p.body
from model_calls c, unnest(c.messages || c.tools || c.params) with ordinality as ref (part, n)
    join audit_parts p on p.id = ref.part
where c.id = (
    select id from model_calls where conversation_id = %(id)s and {which} order by began_at desc, id limit 1)
order by ref.n
"""


class ModelCallNotFound(Exception):
    """The audit has no such call (any more)."""


class SentRequest(NamedTuple):
    """What a model was asked, each piece as the JSON that was kept of it: so `raw` is what was sent, byte for byte.

    `redacted`: hooks have changed messages before they were kept.
    """

    model: str
    messages: list[str]
    tools: str
    params: str
    redacted: bool

    @property
    def raw(self) -> bytes:
        """The request as JSON, in the format of OpenAI's chat completions."""
        tools = f',"tools":{self.tools}' if self.tools != "[]" else ""
        params = f",{self.params[1:-1]}" if self.params != "{}" else ""
        return f'{{"model":{dumps(self.model)},"messages":[{",".join(self.messages)}]{tools}{params}}}'.encode()


async def model_calls_of(
    connection: AsyncConnection, scope: Scope, conversation_id: UUID, *, cursor: str | None = None, limit: int = 50
) -> Page:
    """Return the tries of a conversation's model calls, by turn, step, attempt and try; those of no turn come last.

    Raises `ConversationNotFound`, `InvalidInput`.
    """
    checked_limit(limit)
    await require_readable(connection, scope, conversation_id)
    names = ("turn", "step", "attempt", "try", "began_at", "call")
    readers = (read_seq, read_seq, read_seq, read_seq, read_time, UUID)
    after = decode_cursor(cursor, *readers) if cursor else [None] * len(names)
    values = {"id": conversation_id, "first": cursor is None, "limit": limit + 1} | dict(zip(names, after, strict=True))
    return Page.of(await fetch(connection, _LIST, values), limit, _cursor)


async def request_of(
    connection: AsyncConnection, scope: Scope, conversation_id: UUID, model_call_id: UUID
) -> SentRequest:
    """Return the exact request of a try. Raises `ConversationNotFound`, `ModelCallNotFound`."""
    await require_readable(connection, scope, conversation_id)
    sent = await _sent(connection, "id = %(call)s", {"id": conversation_id, "call": model_call_id})
    if sent is None:
        raise ModelCallNotFound("the audit has no such model call (any more)")
    return sent


async def request_as_of(connection: AsyncConnection, conversation_id: UUID, context_seq: int) -> SentRequest | None:
    """Return the exact request of the newest try in a turn that saw the log up to this seq and no further.

    None where the audit has none. Whoever asks has looked whether the caller may read the conversation.
    """
    return await _sent(connection, "context_seq = %(seq)s", {"id": conversation_id, "seq": context_seq})


async def _sent(connection: AsyncConnection, which: LiteralString, values: dict[str, Any]) -> SentRequest | None:
    query = _PARTS.replace("{which}", which)
    rows = await (await connection.execute(query, values)).fetchall()
    if not rows:
        return None
    model, redacted, _ = rows[0]
    *messages, tools, params = (body for _, _, body in rows)
    return SentRequest(model, messages, tools, params, redacted)


def _cursor(last: dict[str, Any]) -> str:
    place = [_LAST if last[name] is None else last[name] for name in ("turn", "step", "attempt")]
    return encode_cursor(*place, last["try"], last["began_at"], last["id"])
