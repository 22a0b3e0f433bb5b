"""The scenarios: one for each shape that a conversation takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from domain import events
from tests.crash.matrix import scenarios_summaries
from tests.crash.matrix.scenario import SCENARIOS, calling, only_talks, scenario, speaking_for_ever
from tests.support.model_script import Scripted, drop, fails, gate, says

if TYPE_CHECKING:
    from tests.crash.matrix.person import Person
    from tests.crash.matrix.scenario import Upstream

__all__ = ["SCENARIOS", "scenarios_summaries"]


@scenario(only_talks)
async def plain(person: Person, upstream: Upstream) -> None:
    await person.start("Hello")
    await person.turns(1)


@scenario(only_talks)
async def two_turns(person: Person, upstream: Upstream) -> None:
    await person.start("Hello")
    await person.turns(1)
    await person.say("Once more")
    await person.turns(2)


@scenario(calling(("look", {"city": "Oslo"}), ("look", {"city": "Rome"})))
async def tools(person: Person, upstream: Upstream) -> None:
    await person.start("Go")
    await person.turns(1)


@scenario(calling(("look", {"city": "Oslo"}), ("send", {"to": "Ada"}), ("ask", {"question": "Colour?"})))
async def mixed_batch(person: Person, upstream: Upstream) -> None:
    await person.start("Go")
    [question] = await person.asked("ask")
    await person.resolve(question.tool_call_id, "answer", answer="blue")
    [email] = await person.asked("send")
    await person.resolve(email.tool_call_id, "approve")
    await person.turns(1)


@scenario(calling(*(("send", {"to": name}) for name in ("Ada", "Bob", "Cyd"))))
async def three_gated(person: Person, upstream: Upstream) -> None:
    await person.start("Go")
    first, second, third = await person.asked("send", 3)
    await person.resolve(third.tool_call_id, "approve")
    await person.resolve(first.tool_call_id, "reject", reason="not her")
    await person.resolve(first.tool_call_id, "approve", status=409)
    await person.resolve(second.tool_call_id, "edit", args={"to": "Bert"})
    await person.turns(1)


@scenario(calling(("ask", {"question": "Colour?"})))
async def human(person: Person, upstream: Upstream) -> None:
    await person.start("Go")
    [question] = await person.asked("ask")
    await person.resolve(question.tool_call_id, "answer", answer="blue")
    await person.turns(1)


@scenario(calling(("report", {"topic": "Rain"})))
async def steps(person: Person, upstream: Upstream) -> None:
    await person.start("Go")
    await person.turns(1)


def _perhaps_interrupted(outline: list[str], clean: list[str]) -> bool:
    undone = "charge was interrupted; it may have taken effect, and is not run again."
    return outline in (clean, [line.replace("ok | charged 5", f"error | {undone}") for line in clean])


@scenario(calling(("charge", {"amount": 5}), ("look", {"city": "Oslo"})), judge=_perhaps_interrupted)
async def no_rerun(person: Person, upstream: Upstream) -> None:
    await person.start("Go")
    await person.turns(1)


@scenario(calling(("ask", {"question": "Colour?"})))
async def steer(person: Person, upstream: Upstream) -> None:
    await person.start("Go")
    [question] = await person.asked("ask")
    await person.say("And quickly", when_busy="steer")
    await person.resolve(question.tool_call_id, "answer", answer="blue")
    await person.turns(1)


def _hold_once(upstream: Upstream, said: str) -> Scripted | None:
    return says("Half a ", gate(upstream.hold), "reply") if said == "Tell me" else None


def _steered(outline: list[str], clean: list[str]) -> bool:
    """A reply that began again after the steering message has seen it."""
    return outline in (clean, [line for line in clean if "Half a reply" not in line])


@scenario(_hold_once, judge=_steered)
async def steer_while_it_speaks(person: Person, upstream: Upstream) -> None:
    await person.start("Tell me")
    await person.until(lambda: upstream.requests)
    await person.say("Be brief", when_busy="steer")
    upstream.open(upstream.hold)
    await person.turns(1)


@scenario(speaking_for_ever)
async def interrupt(person: Person, upstream: Upstream) -> None:
    await person.start("Tell me")
    await person.until(lambda: upstream.requests)
    await person.say("Stop that", when_busy="interrupt")
    await person.turns(2)


@scenario(calling(("wait", {}), ("send", {"to": "Ada"}), ("ask", {"question": "Colour?"})))
async def interrupt_tools(person: Person, upstream: Upstream) -> None:
    await person.start("Go")
    [email] = await person.asked("send")
    await person.say("Stop that", when_busy="interrupt")
    await person.resolve(email.tool_call_id, "approve", status=409)
    await person.turns(2)


@scenario(speaking_for_ever)
async def cancel(person: Person, upstream: Upstream) -> None:
    await person.start("Tell me")
    await person.until(lambda: upstream.requests)
    await person.cancel()
    await person.say("Hello again")
    await person.turns(2)


@scenario(calling(("wait", {}), ("ask", {"question": "Colour?"})))
async def end(person: Person, upstream: Upstream) -> None:
    await person.start("Go")
    [question] = await person.asked("ask")
    await person.end()
    await person.say("Hello?", status=409)
    await person.resolve(question.tool_call_id, "answer", answer="blue", status=409)


@scenario(speaking_for_ever)
async def end_while_it_speaks(person: Person, upstream: Upstream) -> None:
    await person.start("Tell me")
    await person.until(lambda: upstream.requests)
    await person.end()


@scenario(calling(("send", {"to": "Ada"}), ("look", {"city": "Oslo"})))
async def expiry(person: Person, upstream: Upstream) -> None:
    await person.start("Go", approval_timeout_s=0.6)
    [email] = await person.asked("send")
    await person.until(lambda: person.of(events.Resolution))
    await person.resolve(email.tool_call_id, "approve", status=409)
    await person.turns(1)


def _everything_answered(outline: list[str], clean: list[str]) -> bool:
    def asked(lines: list[str]) -> list[str]:
        return [text for line in lines if line.startswith("turn") for text in line.partition("<- ")[2].split(" + ")]

    return (
        asked(outline) == asked(clean) and outline[0] == clean[0] and all("completed" in line for line in outline[:1])
    )


@scenario(calling(("ask", {"question": "Colour?"}), ("look", {"city": "Oslo"})), judge=_everything_answered)
async def a_message_at_every_moment(person: Person, upstream: Upstream) -> None:
    await person.start("Go")
    await person.until(lambda: person.of(events.TurnStarted))
    await person.say("one")
    await person.until(lambda: upstream.requests)
    await person.say("two")
    [question] = await person.asked("ask")
    await person.say("three")
    await person.until(lambda: person.of(events.ToolResult))
    await person.say("four")
    await person.resolve(question.tool_call_id, "answer", answer="blue")
    await person.say("five")
    await person.turns(1)
    await person.say("six")

    def answered() -> int:
        return sum(len(turn.answers) for turn in person.of(events.TurnStarted))

    await person.until(lambda: answered() == 7 and isinstance(person.log[-1], events.TurnEnded))


@scenario(calling(("locate", {}), ("locate_exactly", {"metres": 5})))
async def client_tools(person: Person, upstream: Upstream) -> None:
    await person.start("Go")
    [exactly] = await person.asked("locate_exactly", kind="approval")
    await person.resolve(exactly.tool_call_id, "approve")
    [roughly] = await person.asked("locate", kind="client")
    await person.resolve(roughly.tool_call_id, "answer", answer="in Oslo")
    await person.asked("locate_exactly", kind="client")
    await person.resolve(exactly.tool_call_id, "answer", answer="at the harbour")
    await person.turns(1)


def _failing_twice(upstream: Upstream, said: str) -> Scripted | None:
    failures = (fails(500, retry_after="0"), says("Half a ", drop()))
    return failures[len(upstream.requests) - 1] if len(upstream.requests) <= len(failures) else None


@scenario(_failing_twice, tries=3)
async def retried_model(person: Person, upstream: Upstream) -> None:
    await person.start("Hello")
    await person.turns(1)


def _failing_but_for_the_fallback(upstream: Upstream, said: str) -> Scripted | None:
    return None if upstream.requests[-1]["model"].endswith(".spare") else fails(401)


@scenario(_failing_but_for_the_fallback, tries=2)
async def fallback_model(person: Person, upstream: Upstream) -> None:
    await person.start("Hello", fallback_models=[f"openai/{upstream.run}.spare"])
    await person.turns(1)


def _failing_at_first(upstream: Upstream, said: str) -> Scripted | None:
    return fails(400) if said == "Hello" else None


@scenario(_failing_at_first)
async def failed_model(person: Person, upstream: Upstream) -> None:
    await person.start("Hello")
    await person.turns(1)
    await person.say("Now?")
    await person.turns(2)
