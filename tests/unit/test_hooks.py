"""Hooks around model calls: what they add, whom they stop, and what each way to go wrong comes to."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import TYPE_CHECKING, Any

import pytest

from commands.agent.compaction import budget_for
from commands.agent.model import ModelError
from domain import events
from domain.errors import InvalidInput
from domain.hooks import (
    Halt,
    Hook,
    HookContext,
    HookDefinitionError,
    Hooks,
    Said,
    after_model,
    before_model,
    marked_hook,
)
from domain.wire import dumps, stream_of
from tests.support.agents import Office, assert_paid, count, says

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID


def hook_of(thing: object) -> Hook:
    hook = marked_hook(thing)
    assert hook is not None
    return hook


def office_with(*hooks: Callable[..., Any]) -> Office:
    return Office(hooks=Hooks(map(hook_of, hooks)))


async def ended(office: Office, *texts: str, **settings: Any) -> tuple[UUID, events.TurnEnded]:
    conversation_id = await office.start(*texts, **settings)
    async with office.working():
        await office.turns_end(conversation_id)
    log = await office.log(conversation_id)
    assert_paid(log)
    end = log[-1]
    assert isinstance(end, events.TurnEnded)
    return conversation_id, end


def add(a: int, b: int) -> int:
    """Add."""
    return a + b


async def test_what_hooks_return_is_the_last_that_the_model_sees_and_nowhere_in_the_log() -> None:
    seen: list[HookContext] = []

    @before_model
    async def first(ctx: HookContext) -> str:
        seen.append(ctx)
        return f"fact of step {ctx.step}"

    @before_model
    def second(ctx: HookContext) -> str | None:
        return "second fact" if ctx.step == 2 else None

    office = office_with(first, second)
    office.toolset = office.surroundings.toolset
    conversation_id = await office.start("hello", system_prompt="Be kind.")
    office.model.script = [says("", ("gone", {})), says("done")]
    async with office.working():
        await office.turns_end(conversation_id)

    one, two = ([dict(message) for message in request.messages] for request in office.model.requests)
    assert [message["role"] for message in one] == ["system", "user", "user"]
    assert "fact of step 1" in one[-1]["content"]
    assert two[: len(one) - 1] == one[:-1], "what was injected is no part of the prefix"
    assert "fact of step 2" in two[-2]["content"]
    assert "second fact" in two[-1]["content"]
    assert "fact" not in dumps([stored.data for stored in await office.store.read(stream_of(conversation_id))])
    assert [(ctx.turn, ctx.step, ctx.asked) for ctx in seen] == [(1, 1, "hello"), (1, 2, "hello")]
    assert seen[0].conversation_id == conversation_id
    assert seen[0].scope.user == "local"
    assert [message["role"] for message in seen[0].messages] == ["system", "user"]


async def test_l10_the_messages_that_a_hook_sees_are_a_copy() -> None:
    @before_model
    def careless(ctx: HookContext) -> None:
        ctx.messages[-1]["content"] = "changed"
        ctx.messages.clear()

    office = office_with(careless)
    await ended(office, "hello")

    assert [message["content"] for message in office.model.requests[0].messages] == ["hello"]


async def test_c5_injected_context_over_its_reserve_stops_the_turn_and_names_the_hook(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @before_model(reserve_tokens=100)
    def talkative(ctx: HookContext) -> str:
        return "word " * 200

    office = office_with(talkative)
    with caplog.at_level(logging.ERROR):
        _, end = await ended(office, "hello")

    assert (end.outcome, end.reason) == ("failed", "hook_failed")
    assert end.detail == "The hook talkative added about 275 tokens: its reserve has 100."
    assert office.model.requests == []
    assert "talkative" in caplog.text
    assert "word" not in caplog.text


async def test_a_hook_halts_the_turn_before_the_model_is_asked_and_the_conversation_goes_on() -> None:
    @before_model
    def office_hours(ctx: HookContext) -> None:
        if "night" in ctx.asked:
            raise Halt("we are closed")

    ran: list[int] = []

    @before_model
    def later(ctx: HookContext) -> None:
        ran.append(ctx.turn)

    office = office_with(office_hours, later)
    conversation_id, end = await ended(office, "good night")
    assert (end.outcome, end.reason, end.detail) == ("failed", "halted", "we are closed")
    assert office.model.requests == []
    assert ran == []

    await office.say(conversation_id, "good morning")
    async with office.working():
        await office.turns_end(conversation_id, 2)
    assert ran == [2]
    assert len(office.model.requests) == 1


async def test_a_hook_sees_a_reply_before_it_is_recorded_and_may_halt_the_turn() -> None:
    seen: list[Said] = []

    @after_model
    async def careful(ctx: HookContext, said: Said) -> None:
        seen.append(said)
        if "secret" in said.text:
            raise Halt("the reply was held back")

    office = office_with(careful)
    office.model.script = [says("the secret is 42", ("add", {"a": 1}))]
    conversation_id, end = await ended(office, "tell me")

    assert (end.reason, end.detail) == ("halted", "the reply was held back")
    assert count(await office.log(conversation_id), events.AssistantMsg) == 0
    assert [one.model for one in end.usage or ()] == ["scripted"], "what it cost is recorded"
    [said] = seen
    assert [(call.name, call.arguments) for call in said.calls] == [("add", '{"a":1}')]
    assert said.usage is not None


def _raise(ctx: HookContext) -> str:
    raise ValueError("the password is swordfish")


async def _raise_later(ctx: HookContext) -> str:
    raise SystemExit("the password is swordfish")


async def _cancel_itself(ctx: HookContext) -> str:
    raise asyncio.CancelledError


def _number(ctx: HookContext) -> Any:
    return 42


@pytest.mark.parametrize(
    ("function", "detail"),
    [
        (_raise, "The hook odd failed (ValueError)."),
        (_raise_later, "The hook odd failed (SystemExit)."),
        (_cancel_itself, "The hook odd cancelled itself."),
        (_number, "The hook odd returned int, and no text."),
    ],
)
async def test_a_hook_that_goes_wrong_fails_the_turn_and_its_traceback_is_logged(
    function: Callable[[HookContext], Any], detail: str, caplog: pytest.LogCaptureFixture
) -> None:
    office = office_with(_marked(function))
    with caplog.at_level(logging.ERROR):
        conversation_id, end = await ended(office, "hello")

    assert (end.outcome, end.reason, end.detail) == ("failed", "hook_failed", detail)
    assert office.model.requests == []
    assert "swordfish" not in dumps([stored.data for stored in await office.store.read(stream_of(conversation_id))])
    assert any(record.exc_info for record in caplog.records) == ("failed" in detail)


def _marked(function: Callable[[HookContext], Any]) -> Callable[[HookContext], Any]:
    return before_model(name="odd")(function)


async def test_a_hook_that_hangs_is_given_up_after_its_time() -> None:
    release = threading.Event()

    @before_model(timeout_s=0.01)
    def stuck(ctx: HookContext) -> None:
        release.wait()

    @after_model(timeout_s=0.01)
    async def stuck_later(ctx: HookContext, said: Said) -> None:
        await asyncio.Event().wait()

    office = office_with(stuck, stuck_later)
    try:
        _, end = await ended(office, "hello", hooks=["stuck"])
        assert end.detail == "The hook stuck was not done after 0.01 s."
    finally:
        release.set()
    conversation_id, end = await ended(office, "hello", hooks=["stuck_later"])
    assert (end.reason, end.detail) == ("hook_failed", "The hook stuck_later was not done after 0.01 s.")
    assert count(await office.log(conversation_id), events.AssistantMsg) == 0


async def test_hooks_run_once_for_all_tries_of_a_call() -> None:
    ran: list[int] = []

    @before_model
    def counted(ctx: HookContext) -> str:
        ran.append(ctx.step)
        return f"run {len(ran)}"

    office = office_with(counted)
    office.model.script = [ModelError("unavailable", "down", retryable=True, retry_after_s=0), says("yes")]
    await ended(office, "hello")

    assert ran == [1]
    one, two = office.model.requests
    assert dumps(one.messages) == dumps(two.messages)


async def test_a_message_that_steers_while_a_hook_runs_is_seen_and_said_to_be() -> None:
    running, go_on = asyncio.Event(), asyncio.Event()

    @before_model
    async def slow(ctx: HookContext) -> None:
        running.set()
        await go_on.wait()

    office = office_with(slow)
    conversation_id = await office.start("hello")
    async with office.working():
        await running.wait()
        await office.say(conversation_id, "and this", when_busy="steer")
        await office.until(conversation_id, lambda seen: count(seen, events.UserMsg) == 2)
        go_on.set()
        await office.turns_end(conversation_id)

    [request, *_] = office.model.requests
    log = await office.log(conversation_id)
    steered = [event.seq for event in log if isinstance(event, events.UserMsg)][1]
    [reply, *_] = [event for event in log if isinstance(event, events.AssistantMsg)]
    saw_it = any(message["content"] == "and this" for message in request.messages)
    assert saw_it == (reply.context_seq >= steered)


async def test_a_conversation_names_its_hooks_and_else_has_all() -> None:
    @before_model
    def one(ctx: HookContext) -> str:
        return "from one"

    @before_model
    def two(ctx: HookContext) -> str:
        return "from two"

    office = office_with(one, two)
    for settings, expected in (({}, 2), ({"hooks": ["two"]}, 1), ({"hooks": []}, 0)):
        office.model.requests.clear()
        await ended(office, "hello", **settings)
        assert len(office.model.requests[0].messages) == 1 + expected
    assert "from" not in str(office.model.requests[0].messages)


async def test_a_hook_that_is_gone_since_it_was_named_fails_the_turn_rather_than_being_left_out() -> None:
    office = office_with(before_model(name="guard")(_number))
    conversation_id = await office.start("hello", hooks=["guard"])
    object.__setattr__(office.surroundings, "hooks", Hooks())
    async with office.working():
        await office.turns_end(conversation_id)

    end = (await office.log(conversation_id))[-1]
    assert isinstance(end, events.TurnEnded)
    assert (end.reason, end.detail) == ("hook_failed", "The hook guard is not on this server.")


async def test_an_unknown_hook_is_refused_in_settings() -> None:
    office = office_with(before_model(name="guard")(_number))
    with pytest.raises(InvalidInput, match=r"settings\.hooks\.1: is no hook of this server, which has: guard"):
        await office.start("hello", hooks=["guard", "other"])


async def test_a_scope_that_cannot_be_looked_up_fails_a_turn_with_hooks() -> None:
    office = office_with(before_model(name="guard")(_number))

    class Nobody:
        async def resolve(self, tenant: str, actor: object) -> Any:
            raise RuntimeError("the directory is down")

    object.__setattr__(office.surroundings, "scopes", Nobody())
    _, end = await ended(office, "hello")
    assert end.reason == "hook_failed"
    assert "RuntimeError" in (end.detail or "")


def _no_arguments() -> None: ...


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: before_model(_no_arguments), "called with the context"),
        (lambda: after_model(_number), "called with the context and what the model said"),
        (lambda: before_model(timeout_s=0)(_number), "timeout_s"),
        (lambda: before_model(reserve_tokens=0)(_number), "reserve_tokens"),
        (lambda: before_model(name="a b")(_number), "a name has"),
        (lambda: before_model(42), "no function"),  # type: ignore[call-overload]  # that is the mistake
        (lambda: Hooks([hook_of(before_model(_number)), hook_of(before_model(_number))]), "two hooks"),
    ],
)
def test_a_wrong_definition_says_what_is_wrong(make: Callable[[], object], message: str) -> None:
    with pytest.raises(HookDefinitionError, match=message):
        make()


async def test_a_hook_gets_the_metadata_of_conversation_and_message() -> None:
    seen: list[Any] = []

    @before_model
    def look(ctx: HookContext) -> None:
        seen.append(dict(ctx.metadata))

    office = office_with(look)
    conversation_id = await office.start()
    await office.say(conversation_id, "hello", metadata={"shop": "north"})
    async with office.working():
        await office.turns_end(conversation_id)
    assert seen == [{"shop": "north"}]


async def test_a_cancel_stops_a_hook() -> None:
    running, stopped = asyncio.Event(), asyncio.Event()

    @before_model
    async def slow(ctx: HookContext) -> None:
        running.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    office = office_with(slow)
    conversation_id = await office.start("hello")
    async with office.working():
        await running.wait()
        await office.cancel(conversation_id)
        await office.turns_end(conversation_id)
        await stopped.wait()
    end = (await office.log(conversation_id))[-1]
    assert isinstance(end, events.TurnEnded)
    assert end.outcome == "cancelled"


async def test_c5_what_hooks_may_add_is_taken_off_the_budget_of_the_conversation() -> None:
    @before_model(reserve_tokens=300)
    def modest(ctx: HookContext) -> str:
        return "little"

    @before_model(reserve_tokens=5_000)
    def greedy(ctx: HookContext) -> str:
        return "little"

    office = office_with(modest, greedy)
    for hooks, tokens in (([], 1_000), (["modest"], 700), (None, 500)):
        settings = {"compaction": {"budget_tokens": 1_000}} | ({} if hooks is None else {"hooks": hooks})
        assert (await budget_for(settings, office.surroundings)).tokens == tokens
