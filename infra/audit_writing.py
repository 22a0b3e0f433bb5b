"""The tables of the audit, as those who write to them see them: notes, their end of life, and erasure.

Who changes what belongs to a conversation holds the lock of its audit, so that none takes away what another refers to.
Parts are locked in the order of their hashes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, LiteralString

from domain.wire import dumps

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime
    from uuid import UUID

    from psycopg import AsyncConnection

    from commands.agent.audit import TryEnded
    from infra.audit_parts import Prepared

MOST_AT_ONCE = 1_000
"""Rows that are collected in one transaction."""
ERASED_FOR = "1 day"
"""No call lasts longer than an erasure is remembered."""

_LOCK: LiteralString = "select pg_advisory_xact_lock(hashtextextended('audit ' || %(id)s, 0))"
_DONE: LiteralString = """
select from audit_erased where conversation_id = %(id)s union all select from model_calls where id = %(call)s
"""
_KNOWN: LiteralString = """
select p.hash, p.id from audit_parts p join audit_uses u on u.part = p.id and u.conversation_id = %(id)s
where p.hash = any(%(hashes)s)
"""
# The update changes nothing: it locks the row, which its last conversation could take with it.
_MAKE: LiteralString = """
with made as (
    insert into audit_parts (hash, body)
    select * from unnest(%(hashes)s::bytea[], %(bodies)s::text[]) as part (hash, body) order by hash
    on conflict (hash) do update set hash = excluded.hash returning hash, id),
used as (insert into audit_uses (conversation_id, part) select %(id)s, id from made)
select hash, id from made
"""
_BEGUN: LiteralString = """
insert into model_calls (
    id, conversation_id, purpose, turn, step, attempt, try, model, messages, tools, params, context_seq,
    summary_to_seq, summary_version, injected, left_out, cut_off, redacted, began_at)
values (
    %(call)s, %(id)s, %(purpose)s, %(turn)s, %(step)s, %(attempt)s, %(try)s, %(model)s, %(messages)s, %(tools)s,
    %(params)s, %(context_seq)s, %(summary_to_seq)s, %(summary_version)s, %(injected)s, %(left_out)s, %(cut_off)s,
    %(redacted)s, %(began_at)s)
"""
_ENDED: LiteralString = """
update model_calls m
set outcome = e.outcome, reason = e.reason, finish_reason = e.finish_reason, usage = e.usage, latency_ms = e.latency_ms
from unnest(%s::uuid[], %s::text[], %s::text[], %s::text[], %s::json[], %s::int[])
    as e (id, outcome, reason, finish_reason, usage, latency_ms)
where m.id = e.id
"""
_EXPIRED: LiteralString = "select conversation_id from model_calls where began_at < %s order by began_at limit 1"
_COLLECT: LiteralString = """
delete from model_calls where id in (
    select id from model_calls where conversation_id = %(id)s and began_at < %(before)s limit %(most)s)
"""
_UNUSED: LiteralString = """
delete from audit_uses where conversation_id = %(id)s and part not in (
    select unnest(array_append(array_append(messages, tools), params)) from model_calls where conversation_id = %(id)s)
returning part
"""
_LOCK_PARTS: LiteralString = "select from audit_parts where id = any(%s) order by hash for update"
_DROP_PARTS: LiteralString = """
delete from audit_parts p where id = any(%s) and not exists (select from audit_uses where part = p.id)
"""


async def write_begun(connection: AsyncConnection, prepared: Prepared) -> None:
    """Keep a note; does nothing for a conversation that was erased, or for a note that is kept already."""
    note = prepared.note
    about, conversation_id = note.about, note.about.conversation_id
    bodies = dict([*prepared.messages, prepared.tools, prepared.params])
    async with connection.pipeline(), connection.transaction():
        await connection.execute(_LOCK, {"id": conversation_id})
        done = await connection.execute(_DONE, {"id": conversation_id, "call": note.call})
        known = await connection.execute(_KNOWN, {"id": conversation_id, "hashes": list(bodies)}, binary=True)
        if await done.fetchone() is not None:
            return
        ids: dict[bytes, int] = dict(await known.fetchall())
        if new := sorted(bodies.keys() - ids.keys()):
            values = {"id": conversation_id, "hashes": new, "bodies": [bodies[hash] for hash in new]}
            ids |= dict(await (await connection.execute(_MAKE, values, binary=True)).fetchall())
        await connection.execute(
            _BEGUN,
            {
                "call": note.call,
                "id": conversation_id,
                "purpose": about.purpose,
                "turn": about.turn,
                "step": about.step,
                "attempt": about.attempt,
                "try": note.number,
                "model": note.request.model,
                "messages": [ids[part.hash] for part in prepared.messages],
                "tools": ids[prepared.tools.hash],
                "params": ids[prepared.params.hash],
                "context_seq": about.context_seq,
                "summary_to_seq": about.summary.to_seq if about.summary else None,
                "summary_version": about.summary.version if about.summary else None,
                "injected": dumps([{"hook": one.hook, "tokens": one.tokens} for one in about.injected]),
                "left_out": dumps(prepared.left_out),
                "cut_off": dumps(prepared.cut_off),
                "redacted": prepared.redacted,
                "began_at": note.began_at,
            },
        )


async def write_ended(connection: AsyncConnection, ended: Sequence[tuple[UUID, TryEnded]]) -> None:
    """Keep what became of tries; those whose beginning was not kept are left out."""
    if ended:
        columns: list[Any] = [
            [call for call, _ in ended],
            [one.outcome for _, one in ended],
            [one.reason for _, one in ended],
            [one.finish_reason for _, one in ended],
            [one.usage.model_dump_json() if one.usage else None for _, one in ended],
            [one.latency_ms for _, one in ended],
        ]
        await connection.execute(_ENDED, columns)


async def collect_once(connection: AsyncConnection, before: datetime) -> bool:
    """Take away what began before a time, of one conversation; False if there was nothing.

    Processes may do so at once.
    """
    row = await (await connection.execute(_EXPIRED, [before])).fetchone()
    if row is None:
        await connection.execute(f"delete from audit_erased where erased_at < now() - interval '{ERASED_FOR}'")
        return False
    async with connection.transaction():
        await connection.execute(_LOCK, {"id": row[0]})
        await connection.execute(_COLLECT, {"id": row[0], "before": before, "most": MOST_AT_ONCE})
        await _drop_unused(connection, row[0])
    return True


async def erase_audit(connection: AsyncConnection, conversation_id: UUID) -> None:
    """Take away all that the audit has of a conversation, and keep nothing more of it."""
    async with connection.transaction():
        await connection.execute(_LOCK, {"id": conversation_id})
        await connection.execute("insert into audit_erased values (%s) on conflict do nothing", [conversation_id])
        await connection.execute("delete from model_calls where conversation_id = %s", [conversation_id])
        await _drop_unused(connection, conversation_id)


async def _drop_unused(connection: AsyncConnection, conversation_id: UUID) -> None:
    unused = [part for (part,) in await (await connection.execute(_UNUSED, {"id": conversation_id})).fetchall()]
    await connection.execute(_LOCK_PARTS, [unused])
    await connection.execute(_DROP_PARTS, [unused])  # with a snapshot that knows who had them locked before
