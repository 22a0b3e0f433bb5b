"""What model calls used: one row for each report of tokens and cost that the log holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from projections.projection import NEVER, Projection, Rows
from projections.visibility import require_readable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from uuid import UUID

    from psycopg import AsyncConnection

    from domain.scope import Scope
    from projections.event import Event


class Report(NamedTuple):
    """One report of usage: what for (``turn``, ``compaction``, ``title``), in which turn, and the numbers."""

    purpose: str
    turn: int | None
    model: str | None
    calls: int
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    cost_usd: float | None


def reports(event: Event) -> Iterator[Report]:
    """Yield the usage that an event reports; a fork's copies report none, for it was counted where it arose."""
    data = event.data
    if not data.get("usage") or event.is_copy:
        return
    match event.type:
        case "assistant_msg":
            yield _report("turn", data["turn"], data["usage"], data["model"])
        case "turn_ended":
            for usage in data["usage"]:
                yield _report("turn", data["turn"], usage, None)
        case "usage_reported":
            for usage in data["usage"]:
                yield _report(data["purpose"], data.get("turn"), usage, None)
        case "summary_recorded":
            yield _report("compaction", None, data["usage"], data.get("model"))
        case "summary_failed":
            for usage in data["usage"]:
                yield _report("compaction", None, usage, None)
        case "conversation_changed":
            yield _report("title", None, data["usage"], None)


def total(reported: Iterable[Report], so_far: dict[str, Any] | None = None) -> dict[str, Any]:
    """Add reports to a total; `cost_usd` stays None until a cost is reported."""
    sums = so_far or {"calls": 0, "input_tokens": 0, "output_tokens": 0, "cached_tokens": 0, "cost_usd": None}
    for report in reported:
        cost = sums["cost_usd"]
        if report.cost_usd is not None:
            cost = (cost or 0.0) + report.cost_usd
        sums = {
            "calls": sums["calls"] + report.calls,
            "input_tokens": sums["input_tokens"] + report.input_tokens,
            "output_tokens": sums["output_tokens"] + report.output_tokens,
            "cached_tokens": sums["cached_tokens"] + report.cached_tokens,
            "cost_usd": cost,
        }
    return sums


def _report(purpose: str, turn: int | None, usage: dict[str, Any], model: str | None) -> Report:
    cost = usage.get("cost_usd")
    return Report(
        purpose,
        turn,
        usage.get("model") or model,
        usage.get("calls", 1),
        usage.get("input_tokens", 0),
        usage.get("output_tokens", 0),
        usage.get("cached_tokens", 0),
        None if cost is None else float(cost),
    )


def fold(rows: Rows, events: Sequence[Event]) -> None:
    """Keep each report; `seq` counts compactions in the stream of summaries, all else in the conversation's own."""
    for event in events:
        for n, report in enumerate(reports(event)):
            rows.put({"seq": event.seq, "n": n, **report._asdict()})


USAGE = Projection(
    name="usage",
    version=2,
    columns={
        "purpose": "text not null",
        "seq": "int not null",
        "n": "int not null",
        "turn": "int",
        "model": "text",
        "calls": "int not null",
        "input_tokens": "bigint not null",
        "output_tokens": "bigint not null",
        "cached_tokens": "bigint not null",
        "cost_usd": "float8",
    },
    streams="both",
    key=("seq", "n", "purpose"),
    open_while=NEVER,
    fold=fold,
)

BY_TURN = """
select purpose, turn, model, calls, input_tokens, output_tokens, cached_tokens, cost_usd
from usage where conversation_id = %s order by purpose = 'compaction', seq, n
"""


async def usage_of(connection: AsyncConnection, scope: Scope, conversation_id: UUID) -> dict[str, Any]:
    """Return ``{items, total}``: per turn, purpose and model, compactions last, and over all.

    Raises `ConversationNotFound`.
    """
    await require_readable(connection, scope, conversation_id)
    cursor = await connection.execute(BY_TURN, [conversation_id])
    reported = [Report(*row) for row in await cursor.fetchall()]
    groups: dict[tuple[int | None, str, str | None], list[Report]] = {}
    for report in reported:
        groups.setdefault((report.turn, report.purpose, report.model), []).append(report)
    items = [
        {"turn": turn, "purpose": purpose, "model": model, **total(group)}
        for (turn, purpose, model), group in groups.items()
    ]
    return {"items": items, "total": total(reported)}
