"""What is owed and when: the to-do list from which workers claim. One row per conversation and kind of work.

A row of kind ``turn`` is about the conversation's own stream; one of kind ``compaction`` about both streams, and its
`seq` is a position of the whole log: that of the newest event which has to do with it.

Columns have one owner each. The projector's are a function of the log: `seq` (folded so far), `due_at` (null: never),
`at_once` (due as soon as it is seen; `due_at` is then the newest event's time, for the order), `state` (what is open;
null: nothing). The workers' say what a worker saw at `seen_seq` (then due at `seen_due`) and who holds the row until
when. Whoever knows more of the log decides when to look next: `wake_at`.

A row may be deleted when ``state is null and seq >= seen_seq`` and nobody holds it; workers may insert one (seq 0).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from domain.events import EVENT_TYPES
from domain.owes import AwaitInput
from projections.open_state import keep_state, load_state, only_awaits, owed_at_any_time, skim
from projections.projection import Projection, Rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from projections.event import Event


def fold(rows: Rows, events: Sequence[Event]) -> None:
    """Say what the conversation owes after its newest event."""
    if own := [event for event in events if event.type in EVENT_TYPES]:
        _fold_turn(rows, own)
    _fold_compaction(rows, events)


def _fold_turn(rows: Rows, events: Sequence[Event]) -> None:
    row = rows.get("turn")
    conversation = load_state(rows.conversation_id, row["state"] if row else None)
    for event in skim(conversation, events):
        conversation.evolve(event.decoded)
    owed = owed_at_any_time(conversation)
    at_once = bool(owed) and not only_awaits(owed)
    deadlines = [one.until for one in owed if isinstance(one, AwaitInput) and one.until]
    rows.put(
        {
            "kind": "turn",
            "seq": events[-1].seq,
            "due_at": events[-1].occurred_at if at_once else min(deadlines, default=None),
            "at_once": at_once,
            "state": keep_state(conversation),
        }
    )


def _fold_compaction(rows: Rows, events: Sequence[Event]) -> None:
    """A turn that ended beyond the budget, or a request, owes a compaction until a summary was made that knew of it."""
    row = rows.get("compaction")
    state = (row and row["state"]) or {"ended": None, "requested": False}
    ended, requested = state["ended"], state["requested"]
    newest: Event | None = None
    for event in events:
        match event.type:
            case "turn_ended" if event.data.get("compact") and not event.is_copy:
                ended = event.seq
            case "summary_requested":
                requested = True
            case "summary_recorded":
                requested = False
                ended = None if ended is not None and ended <= event.data["context_seq"] else ended
            case "conversation_ended" if row or newest:
                ended, requested = None, False
            case _:
                continue
        newest = event
    if newest is None:
        return
    owed = ended is not None or requested
    rows.put(
        {
            "kind": "compaction",
            "seq": newest.position,
            "due_at": newest.occurred_at if owed else None,
            "at_once": owed,
            "state": {"ended": ended, "requested": requested} if owed else None,
        }
    )


# No clock is asked whether work is due at once: the log's clock may be ahead of the database's.
WAKE_AT = """wake_at timestamptz generated always as (
    case when seq <= seen_seq then case when seen_due is not null then greatest(seen_due, hold_until) end
         when at_once then coalesce(hold_until, timestamptz '1970-01-01 00:00:00+00')
         when due_at is not null then greatest(due_at, hold_until) end) stored"""

# once a batch: when the first of these rows of a kind wants to be looked at, in seconds since 1970
ANNOUNCE = """
select pg_notify('agenda ' || kind, extract(epoch from min(wake_at))::text) from agenda
where conversation_id = any(%(conversations)s) group by kind having min(wake_at) is not null
"""

# Workers notice nothing: what they know and hold goes on to hold. What owes nothing is there only for their sake.
CARRY_OVER = """
insert into agenda (conversation_id, kind, seq, seen_seq, seen_due, claimed_by, hold_until, strikes)
select conversation_id, kind, seq, seen_seq, seen_due, claimed_by, hold_until, strikes from agenda_former
where seen_seq > 0 or claimed_by is not null or hold_until is not null
on conflict (conversation_id, kind) do update set seen_seq = excluded.seen_seq, seen_due = excluded.seen_due,
    claimed_by = excluded.claimed_by, hold_until = excluded.hold_until, strikes = excluded.strikes
"""

AGENDA = Projection(
    name="agenda",
    version=2,
    columns={
        "kind": "text not null",
        "seq": "bigint not null default 0",
        "due_at": "timestamptz",
        "at_once": "boolean not null default false",
        "state": "json",
    },
    streams="both",
    key=("kind",),
    fold=fold,
    extra=(
        "seen_seq bigint not null default 0",
        "seen_due timestamptz",
        "claimed_by uuid",
        "hold_until timestamptz",
        "strikes int not null default 0",
        WAKE_AT,
    ),
    indexes=("(kind, wake_at) where wake_at is not null",),
    announce=ANNOUNCE,
    carry_over=CARRY_OVER,
    is_void=lambda row: row["state"] is None and row["due_at"] is None,
)
