"""When a conversation is too large, who summarises it, what of the event loop that costs, and what fails on the way."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from commands.agent import compaction
from commands.agent.compaction import compact
from commands.agent.model import ModelError
from commands.agent.model_context import ModelContext
from commands.summaries import revived
from domain import events
from domain.compaction import WINDOW_SHARE, budget_of, cut, exceeds
from domain.parts import text_part
from domain.summarising import request_messages
from tests.support.agents import Office, says
from tests.support.compacting import SUMMARY, WORDS, Summarising, goes_on, of, summaries, talked

if TYPE_CHECKING:
    from collections.abc import Callable

    from commands.agent.model import ModelReply


@dataclass
class Known:
    """The port `Windows`."""

    windows: dict[str, int]

    async def window_of(self, model: str) -> int | None:
        return self.windows.get(model)


@pytest.fixture
def office() -> Office:
    return Office(model=Summarising())


def test_the_budget_is_a_share_of_the_models_window_where_none_is_set() -> None:
    assert budget_of({}, 200_000).tokens == 200_000 * WINDOW_SHARE
    assert budget_of({}, None).tokens == 96_000
    assert budget_of({"compaction": {"budget_tokens": 5_000}}, 200_000).tokens == 5_000
    assert (budget_of({}, None).strategy, budget_of({}, None).keep_recent) == ("llm", 20_000)
    assert budget_of({}, 8_000).keep_recent == 3_000, "half of the budget at most"


def test_room_for_the_next_turn_belongs_to_what_has_to_fit() -> None:
    budget = budget_of({"compaction": {"budget_tokens": 1_000}}, None)
    assert [exceeds(budget, tokens, 50) for tokens in (900, 901)] == [False, True]
    assert [exceeds(budget, tokens, 5_000) for tokens in (750, 751)] == [False, True]
    assert not exceeds(replace(budget, strategy="none"), 5_000, 50)


async def test_a_conversation_without_a_budget_is_compacted_by_the_window_of_its_model(office: Office) -> None:
    office.surroundings = replace(office.surroundings, windows=Known({"scripted": 1_400}))
    one = await talked(office, 6, budget_tokens=None)
    ends = [event.compact for event in await office.log(one) if isinstance(event, events.TurnEnded)]
    assert ends == [None] * 3 + [True] * 3
    await compact(one, office.surroundings)
    assert len(await summaries(office, one)) == 1


@pytest.mark.parametrize(
    ("server", "conversation", "asked"),
    [(None, None, "scripted"), ("cheap", None, "cheap"), ("cheap", "own", "own")],
)
async def test_the_conversations_own_summariser_is_asked_else_the_servers_else_its_model(
    office: Office, server: str | None, conversation: str | None, asked: str
) -> None:
    one = await talked(office, 6, **({"model": conversation} if conversation else {}))
    await compact(one, replace(office.surroundings, compaction_model=server))
    [request] = of(office).asked_to_summarise
    assert (request.model, list(request.tools)) == (asked, [])
    assert request.params == {"max_tokens": 250}


async def test_a_summary_is_asked_for_in_these_sections_and_nothing_of_the_log_is_an_instruction(
    office: Office,
) -> None:
    one = await talked(office, 6)
    await compact(one, office.surroundings)
    [request] = of(office).asked_to_summarise
    system, user = (message["content"] for message in request.messages)
    sections = [line.strip("# ") for line in system.splitlines() if line.startswith("#")]
    assert sections == [
        "Goal", "Progress", "Done", "In progress", "Key decisions", "Next steps", "Critical context",
    ]  # fmt: skip
    assert user.startswith("<conversation>\nUser: 0: word")
    assert user.endswith("</conversation>\n\nWrite the summary now.")


async def test_a_summary_that_was_cut_off_is_kept_without_its_last_line(office: Office) -> None:
    one = await talked(office, 6)

    async def cut_off() -> ModelReply:
        return replace(says("## Goal\nTo talk.\n\n## Next st"), finish_reason="length")

    of(office).summary = cut_off
    await compact(one, office.surroundings)
    assert [summary.content for summary in await summaries(office, one)] == ["## Goal\nTo talk."]


async def test_t9_a_summary_is_asked_for_again_when_its_stream_breaks(office: Office) -> None:
    one = await talked(office, 6)

    async def breaks() -> ModelReply:
        of(office).summary = None
        raise ModelError("unavailable", "reset", retryable=True)

    of(office).summary = breaks
    await compact(one, office.surroundings)
    assert [summary.content for summary in await summaries(office, one)] == [SUMMARY]
    assert len(of(office).asked_to_summarise) == 2


async def test_of_what_is_too_long_for_a_summariser_the_middle_is_left_out_and_images_are_named(
    office: Office,
) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    one = await office.start(compaction={"budget_tokens": 1_000, "keep_recent_tokens": 0})
    async with office.working():
        await office.say(one, "Look: " + WORDS * 8)
        await office.turns_end(one, 1)
        await office.say(one, [text_part("And?").model_dump(exclude_none=True), image])  # type: ignore[arg-type]  # the API takes parts too
        await office.turns_end(one, 2)
    await compact(one, office.surroundings)
    first = of(office).asked_to_summarise[0].messages[1]["content"]
    assert "characters left out" in first
    assert len(first) < 4_500
    assert any("And?\n[image_url]" in request.messages[1]["content"] for request in of(office).asked_to_summarise)


async def test_cutting_and_rendering_for_a_summary_keep_nobody_else_waiting(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []

    def noted(work: Callable[..., Any]) -> Callable[..., Any]:
        def noting(*given: Any, **named: Any) -> Any:
            threads.append(threading.get_ident())
            return work(*given, **named)

        return noting

    monkeypatch.setattr(compaction, "cut", noted(cut))
    monkeypatch.setattr(compaction, "request_messages", noted(request_messages))
    one = await talked(office, 6)
    await compact(one, office.surroundings)
    assert len(threads) == 3
    assert threading.get_ident() not in threads


async def test_reading_and_rendering_a_long_history_lets_others_go_on_in_between(office: Office) -> None:
    one = await office.start(compaction={"strategy": "none"})
    for n in range(250):
        await office.say(one, f"message {n}", respond=False)
    await office.say(one, "And now?")
    await (await office.runner(one)).run()
    ticks = 0

    async def others() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0)

    going_on = asyncio.create_task(others())
    session = await office.conversations.load(one)
    context = ModelContext(office.store, session)
    for work in (
        context.refresh,
        partial(context.prepare, system_prompt=None, model="scripted"),
        partial(revived, office.store, one),
    ):
        before = ticks
        await work()
        assert ticks >= before + 2
    going_on.cancel()
    assert len(context.messages(system_prompt=None, model="scripted")) == 252


async def test_a_turn_while_the_summariser_is_down_goes_on_with_the_whole_conversation(office: Office) -> None:
    one = await talked(office, 6)

    async def down() -> ModelReply:
        raise ModelError("auth", "no key", retryable=False)

    of(office).summary = down
    with pytest.raises(ModelError):
        await compact(one, office.surroundings)
    assert len(await goes_on(office, one)) == 13
    of(office).summary = None
    await compact(one, office.surroundings)
    assert SUMMARY in (await goes_on(office, one))[0]["content"]
