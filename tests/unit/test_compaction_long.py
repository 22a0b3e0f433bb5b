"""A conversation of 500 turns at a small budget: what its model is asked, and what stays in the log."""

from __future__ import annotations

import json
import re
import time
from typing import TYPE_CHECKING, Any

from commands.agent.compaction import compact
from commands.summaries import revived, summary_events
from domain import events
from domain.summarising import INSTRUCTIONS
from domain.tokens import tokens_of
from domain.wire import stream_of
from domain.working_set import WorkingSet
from tests.support.agents import Office, ScriptedModel, assert_paid, says

if TYPE_CHECKING:
    from uuid import UUID

    from domain.event_store import StoredEvent

TURNS = 500
BUDGET = 2_500
FACT = re.compile(r"fact-\d+")


class KeepsFacts(ScriptedModel):
    """Looks something up in each third turn; its summaries have every fact that they are shown."""

    async def stream(self, request: Any) -> Any:
        first, last = request.messages[0]["content"], request.messages[-1]
        if first == INSTRUCTIONS:
            yield says("## Critical context\n" + " ".join(dict.fromkeys(FACT.findall(last["content"]))))
            return
        wants = last["role"] == "user" and "look up" in last["content"]
        self.script.append(says("", ("look_up", {"characters": 400})) if wants else says("Noted."))
        async for item in super().stream(request):
            yield item


def look_up(characters: int) -> str:
    """Look something up."""
    return "x" * characters


async def test_c3_of_500_turns_no_request_exceeds_the_budget_and_no_fact_is_lost() -> None:
    office = Office(model=KeepsFacts(), tools=(look_up,))
    one = await office.start(compaction={"budget_tokens": BUDGET, "keep_recent_tokens": 900})
    planted: list[str] = []
    compactions = 0
    for n in range(TURNS):
        planted += [f"fact-{n}"] if n % 10 == 0 else []
        said = [f"message {n}", planted[-1] if n % 10 == 0 else "", "look up" if n % 3 == 0 else "", "word " * (n % 50)]
        asked = len(office.model.requests)
        await office.say(one, " ".join(said))
        await (await office.runner(one)).run()
        for request in office.model.requests[asked:]:
            assert tokens_of(request.messages) <= BUDGET, f"in turn {n}"
            assert set(FACT.findall(json.dumps(list(request.messages)))) == set(planted)
        if await owes_compaction(office, one):
            before = await newest(office, one)
            await compact(one, office.surroundings)
            compactions += 1
            assert await newest(office, one) == before, "C1"
    log = await office.log(one)
    assert_paid(log)
    assert sum(isinstance(event, events.TurnEnded) for event in log) == TURNS
    assert compactions > TURNS / 40
    assert len(await summary_events(office.store, one)) == compactions

    state, seen = await revived(office.store, one)
    assert state.latest is not None
    assert len(seen) < 200, "what is loaded does not grow with the conversation"


async def newest(office: Office, one: UUID) -> list[StoredEvent]:
    return await office.store.read(stream_of(one), limit=20)


async def owes_compaction(office: Office, one: UUID) -> bool:
    (ended,) = await office.store.read(stream_of(one), limit=1)
    return bool(json.loads(ended.data).get("compact"))


async def test_rendering_a_long_history_costs_microseconds_an_event() -> None:
    office = Office(model=KeepsFacts(), tools=(look_up,))
    one = await office.start(compaction={"strategy": "none"})
    for n in range(100):
        await office.say(one, f"message {n} look up")
        await (await office.runner(one)).run()
    log = (await office.log(one))[1:] * 10
    began = time.process_time()
    rendered = WorkingSet(system_prompt=None, model="scripted").fold(log)
    rendered.messages()
    rendered.tokens()
    took_us = (time.process_time() - began) / len(log) * 1e6
    print(f"{took_us:.1f} µs an event")
    assert took_us < 500
