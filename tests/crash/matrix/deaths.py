"""What a process was doing when it died, as far as its notes tell."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.crash.matrix.victims import Victim


def unrecorded(victim: Victim) -> set[tuple[str, str]]:
    """Return the effects of a process, and under which id, that it did not see recorded before it died."""
    open_effects: dict[tuple[str, str], tuple[str, str]] = {}
    for note in victim.notes:
        if effect := note.get("effect"):
            record = effect if effect.startswith("step ") else "result"
            open_effects[note["id"], record] = effect, note["id"]
        for call_id, record in note.get("recorded", ()):
            open_effects.pop((call_id, record), None)
    return set(open_effects.values())


def recoveries(victims: Sequence[Victim]) -> list[float]:
    """Return how long it took, after each death of a holder, until another process had claimed the conversation."""
    return [
        claimed - dead.notes[-1]["t"]
        for dead, heir in pairwise(victims)
        if dead.died_there and held(dead)[1]
        if (claimed := next((note["t"] for note in heir.notes if note.get("claimed")), 0.0))
    ]


def was_appending(victim: Victim) -> bool:
    """Say whether a process died with an append under way, that was recorded or not."""
    under_way: set[str] = set()
    for name, _, moment in (label.partition(":") for label in victim.reached if label.startswith("append#")):
        (under_way.discard if moment in ("after", "moved") else under_way.add)(name)
    return bool(under_way)


def held(victim: Victim) -> tuple[int, bool]:
    """Return the last seq that a process appended, and whether it surely held the conversation when it died."""
    last, holds = 0, False
    for note in victim.notes:
        last = max(last, note.get("seq", 0) if "types" in note else 0)
        if "claimed" in note:
            holds = holds or note["claimed"] > 0
        elif note.get("at", "").startswith("hand-back#"):
            holds = note.get("finished") is False
    return last, holds


def lost_summaries(victim: Victim) -> int:
    """Return how many summaries a process had asked for, without seeing recorded what came of it, when it died."""
    asked = {label for label in victim.reached if label.startswith("summary#") and label.endswith(":before")}
    made = [
        note
        for note in victim.notes
        if note.get("at", "").endswith(":after")
        and {"summary_recorded", "summary_failed"}.intersection(note.get("summary_types", ()))
    ]
    return len(asked - {victim.kill_at}) - len(made)


def was_asking(victim: Victim) -> bool:
    """Say whether a process died between the sending of a request and the append of what came of it."""
    asking = False
    for note in victim.notes:
        label = note.get("at", "")
        if label.startswith("model#"):
            asking = asking or label != victim.kill_at or not label.endswith(":before")
        elif label.startswith("append#") and label.endswith(":after"):
            asking = asking and not {"assistant_msg", "turn_ended"} & set(note["types"])
    return asking
