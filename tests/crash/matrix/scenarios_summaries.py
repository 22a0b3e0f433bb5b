"""The scenarios of compaction: beside turns, by hand, in a turn that is too long, and taken back while it goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from domain import events
from tests.crash.matrix.scenario import only_talks, scenario
from tests.support.model_script import Scripted, context_window_exceeded, gate, says, text_of

if TYPE_CHECKING:
    from tests.crash.matrix.person import Person
    from tests.crash.matrix.scenario import Upstream

TIGHT = {"budget_tokens": 400, "keep_recent_tokens": 150}
"""Two turns with as many words as below are too much."""
WORDS = "word " * 60


async def _two_turns(person: Person) -> None:
    await person.start(f"0 {WORDS}", compaction=TIGHT)
    await person.turns(1)
    await person.say(f"1 {WORDS}")
    await person.turns(2)


@scenario(only_talks)
async def compaction(person: Person, upstream: Upstream) -> None:
    await _two_turns(person)
    await person.summarised()
    await person.say("And now?")
    await person.turns(3)


def _held(upstream: Upstream) -> Scripted:
    return says("## Goal\n", gate(upstream.hold), "A trip.")


@scenario(only_talks, summarise=_held)
async def compaction_beside_a_turn(person: Person, upstream: Upstream) -> None:
    await _two_turns(person)
    await person.until(lambda: upstream.summaries)
    await person.say("Meanwhile?")
    await person.turns(3)  # it does not wait for the summary, which cannot be made before
    upstream.open(upstream.hold)
    await person.summarised()
    await person.say("And now?")
    await person.turns(4)


@scenario(only_talks)
async def compaction_by_hand(person: Person, upstream: Upstream) -> None:
    await person.start(f"0 {WORDS}")
    await person.turns(1)
    await person.compact()
    await person.summarised()
    await person.say("And now?")
    await person.turns(2)


def _updates(upstream: Upstream) -> bool:
    return "<previous-summary>" in text_of(upstream.summaries[-1]["messages"][-1]) if upstream.summaries else False


def _update_held(upstream: Upstream) -> Scripted:
    return _held(upstream) if _updates(upstream) else says("## Goal\n", "A trip.")


@scenario(only_talks, summarise=_update_held)
async def compaction_whose_base_is_revoked(person: Person, upstream: Upstream) -> None:
    await _two_turns(person)
    [first, *_] = await person.summarised()
    await person.say(f"2 {WORDS}")
    await person.turns(3)
    await person.until(lambda: _updates(upstream))
    await person.revoke(first.to_seq)
    upstream.open(upstream.hold)
    await person.say("And now?")
    await person.turns(4)


def _too_long_once(upstream: Upstream, said: str) -> Scripted | None:
    asked = [request for request in upstream.requests if text_of(request["messages"][-1]) == "Too long"]
    return context_window_exceeded() if said == "Too long" and len(asked) == 1 else None


@scenario(_too_long_once, tries=2)
async def compaction_within_a_turn(person: Person, upstream: Upstream) -> None:
    await person.start(f"0 {WORDS}")
    await person.turns(1)
    await person.say(f"1 {WORDS}")
    await person.turns(2)
    await person.say("Too long")
    await person.turns(3)
    await person.until(lambda: isinstance(person.log[-1], events.TurnEnded))
