"""Long conversations over a log in memory, and a model that is asked for their summaries too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import uuid4

from commands.context import CommandContext
from commands.summaries import summary_events
from domain import events
from domain.scope import LOCAL
from domain.summarising import INSTRUCTIONS
from domain.summary_events import SummaryRecorded
from tests.support.agents import Office, ScriptedModel, says

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from uuid import UUID

    from commands.agent.model import ModelReply, ModelRequest

TURN_TOKENS = 200
WORDS = "word " * (TURN_TOKENS * 4 // 5)
TIGHT = {"budget_tokens": 1_000, "keep_recent_tokens": 500}
SUMMARY = "## Goal\nTo talk.\n\n## Critical context\nThe code is 4711."


class Summarising(ScriptedModel):
    """Turns are answered by the script, else in a word; requests for summaries by `summary`, else by the one above."""

    def __init__(self) -> None:
        super().__init__()
        self.asked_to_summarise: list[ModelRequest] = []
        self.summary: Callable[[], Awaitable[ModelReply]] | None = None

    async def stream(self, request: ModelRequest) -> Any:
        if request.messages[0]["content"] != INSTRUCTIONS:
            if not self.script:
                self.script.append(says("Yes."))
            async for item in super().stream(request):
                yield item
            return
        self.asked_to_summarise.append(request)
        yield await self.summary() if self.summary else says(SUMMARY)


def of(office: Office) -> Summarising:
    """Return the office's model."""
    assert isinstance(office.model, Summarising)
    return office.model


async def talked(office: Office, turns: int, *, words: str = WORDS, **compaction: Any) -> UUID:
    """Begin a conversation of so many turns, each of about `TURN_TOKENS`."""
    one = await office.start(compaction={**TIGHT, **compaction})
    async with office.working():
        for n in range(turns):
            await office.say(one, f"{n}: {words}")
            await office.turns_end(one, n + 1)
    return one


async def goes_on(office: Office, one: UUID, text: str = "And now?") -> list[dict[str, Any]]:
    """Let one more turn happen, and return the messages of its last request."""
    turns = sum(isinstance(event, events.TurnEnded) for event in await office.log(one))
    async with office.working():
        await office.say(one, text)
        await office.turns_end(one, turns + 1)
    return [dict(message) for message in office.model.requests[-1].messages]


async def newest_end(office: Office, one: UUID) -> events.TurnEnded:
    """Return the end of the newest turn."""
    ended = (await office.log(one))[-1]
    assert isinstance(ended, events.TurnEnded)
    return ended


def context() -> CommandContext:
    """Make the circumstances of a command."""
    return CommandContext(LOCAL, uuid4(), "hash", keyed=False)


async def summaries(office: Office, one: UUID) -> list[SummaryRecorded]:
    """Return all summaries, revoked ones too."""
    found = await summary_events(office.store, one)
    return [event for event in found if isinstance(event, SummaryRecorded)]
