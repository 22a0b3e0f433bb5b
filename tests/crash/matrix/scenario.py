"""What a scenario is: what the person does, what the model answers, and what may come of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from tests.crash.matrix.person import Person
from tests.support.model_script import Scripted, call, calls, gate, says, text_of


@dataclass
class Upstream:
    """The provider of a run: the bodies of all requests that it got, apart those for summaries.

    `hold` and `never` are names of gates.
    """

    run: str
    open: Callable[[str], None]
    requests: list[dict[str, Any]] = field(default_factory=list)
    summaries: list[dict[str, Any]] = field(default_factory=list)

    @property
    def hold(self) -> str:
        """A gate that the person opens."""
        return f"{self.run} hold"

    @property
    def never(self) -> str:
        """A gate that stays closed."""
        return f"{self.run} never"


Answer = Callable[[Upstream, str], Scripted | None]
"""Answers what a user said last; None, and after tool results: the usual answer."""
Summarise = Callable[[Upstream], Scripted]
"""Answers the newest request for a summary."""
Play = Callable[[Person, Upstream], Awaitable[None]]
Judge = Callable[[list[str], list[str]], bool]
"""Says whether the outline of a killed run could be one of a run that was not killed, of which another is given."""


def same(outline: list[str], clean: list[str]) -> bool:
    """Expect the outline of the run that was not killed."""
    return outline == clean


def a_summary(upstream: Upstream) -> Scripted:
    """Answer at once."""
    return says("## Goal\n", "A trip.")


@dataclass(frozen=True)
class Scenario:
    """`tries` is how often one model call may ask the provider while nobody is killed."""

    name: str
    play: Play
    answer: Answer
    judge: Judge = same
    tries: int = 1
    summarise: Summarise = a_summary


SCENARIOS: dict[str, Scenario] = {}


def scenario(
    answer: Answer, *, judge: Judge = same, tries: int = 1, summarise: Summarise = a_summary
) -> Callable[[Play], Play]:
    """Make a scenario of what the person does; it is named after the function."""

    def add(play: Play) -> Play:
        name = play.__name__.replace("_", "-")
        SCENARIOS[name] = Scenario(name, play, answer, judge, tries, summarise)
        return play

    return add


def usual_answer(body: dict[str, Any]) -> Scripted:
    """Repeat the user, or say that the tools are done."""
    last = body["messages"][-1]
    return says("All ", "done.") if last["role"] == "tool" else says("You said: ", text_of(last))


def only_talks(upstream: Upstream, said: str) -> None:
    """Give no answer but the usual."""


def calling(*requests: tuple[str, dict[str, Any]], about: str = "Go") -> Answer:
    """Answer one message by calls."""
    wanted = [call(name, args, id=f"call_{n}", index=n) for n, (name, args) in enumerate(requests)]
    return lambda upstream, said: says("I need ", "tools. ", calls(*wanted)) if said == about else None


def speaking_for_ever(upstream: Upstream, said: str) -> Scripted | None:
    """Never come to the end of the answer to one message."""
    return says("Half a ", "reply ", gate(upstream.never)) if said == "Tell me" else None
