"""Titles that a model gives: what is one, when it is wanted, and that a person's own always stays."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from commands.agent.model import ModelError
from commands.agent.titles import name_conversation, wished
from commands.change_conversation import ChangeConversation, change_conversation
from commands.context import CommandContext
from commands.end_conversation import EndConversation, end_conversation
from domain.events import ConversationChanged, UsageReported
from domain.scope import LOCAL, SYSTEM
from domain.titles import LONGEST, cleaned_title, person_to_be_named, title_messages, wants_title
from domain.usage import Usage
from tests.support.agents import Office, says
from tests.support.given import NOW, OPEN_TURN, asked, changed, claimed, closed, given, history, said, started

if TYPE_CHECKING:
    from uuid import UUID

    from commands.agent.model import ModelReply, ModelRequest

FIRST = (*OPEN_TURN, said("Take the train."), closed())


@pytest.mark.parametrize(
    ("answer", "title"),
    [
        ("A trip to Rome", "A trip to Rome"),
        ('"A trip to Rome."\n\nI hope that helps!', "A trip to Rome"),
        ("\n  **Title: »Eine Reise nach Rom«**\n", "Eine Reise nach Rom"),
        ("<think>The user wants\na title</think>\n“Rome\tby  train”", "Rome by train"),
        ("「ローマへの旅」", "ローマへの旅"),
        ("# It's here", "It's here"),
        ("<think>and so on", None),
        (' \n""\n', None),
        ("", None),
    ],
)
def test_a_title_is_one_line_without_marks(answer: str, title: str | None) -> None:
    assert cleaned_title(answer) == title


def test_a_long_title_is_cut_between_words() -> None:
    title = cleaned_title("word " * 100)
    assert title is not None
    assert len(title) <= LONGEST
    assert title.endswith("word…")
    assert len(cleaned_title("x" * 500) or "") == LONGEST


def test_the_first_answer_of_a_nameless_conversation_wants_a_title() -> None:
    second = (asked("m2"), claimed(), said(), closed())
    assert wants_title(history(*FIRST), 1)
    assert wants_title(history(*FIRST, *second), 1)
    assert wants_title(history(*OPEN_TURN, closed("failed"), *second), 2)
    assert not wants_title(history(*OPEN_TURN), 1)
    assert not wants_title(history(*OPEN_TURN, closed("cancelled")), 1)
    assert not wants_title(history(*FIRST, *second), 2)
    assert not wants_title(history(started(title="Mine"), asked(), claimed(), said(), closed()), 1)
    assert not wants_title(history(*FIRST, changed(title="")), 1)
    assert wants_title(history(*FIRST, changed(metadata={"a": 1})), 1)


def test_a_model_is_asked_with_the_beginning_of_what_was_said() -> None:
    messages = title_messages(
        history(started(), asked(text="How to Rome?" + "!" * 9_000), claimed(), said("By train."))
    )
    assert str(messages[1]["content"]).startswith("<user>\nHow to Rome?!!!")
    assert "By train." in messages[1]["content"]
    assert len(messages[1]["content"]) < 4_500
    assert (person_to_be_named(messages) or "").startswith("How to Rome?")
    assert person_to_be_named([{"role": "user", "content": "Hi"}, {"role": "user", "content": "Ho"}]) is None


def test_a_model_is_asked_with_nothing_of_later_turns() -> None:
    later = (asked("m2", text="And Naples?"), said("By train."), closed(), claimed(), said("By bus."), closed())
    asks = title_messages(history(started(), asked(text="How to Rome?"), claimed(), *later))
    assert asks[1]["content"] == "<user>\nHow to Rome?\n</user>\n<assistant>\nBy train.\n</assistant>"


def test_a_title_at_the_end_is_only_paid_for() -> None:
    usage = Usage(input_tokens=9)
    given(*FIRST).when(lambda c: c.entitle("Rome", usage, now=NOW)).then(ConversationChanged).and_owes()
    given(*FIRST).when(lambda c: c.entitle(None, usage, now=NOW)).then(UsageReported)
    given(*FIRST).when(lambda c: c.entitle(None, None, now=NOW)).then_nothing()


async def named(office: Office, *script: object, cheap: str | None = None, **settings: object) -> UUID:
    """Have a first message answered, and then the conversation named as far as that goes."""
    office.model.script += [says("Take the train."), *script]
    conversation = await office.start("How do I get to Rome?", **settings)
    await (await office.runner(conversation)).run()
    await name_conversation(conversation, 1, replace(office.surroundings, compaction_model=cheap))
    return conversation


async def changes(office: Office, conversation: UUID) -> list[ConversationChanged]:
    return [event for event in await office.log(conversation) if isinstance(event, ConversationChanged)]


async def test_the_first_answer_names_the_conversation_as_the_system() -> None:
    office = Office()
    conversation = await named(office, says('"By train to Rome"'), titles=True, system_prompt="Be brief.")

    (change,) = await changes(office, conversation)
    assert (change.title, change.actor, change.usage) == ("By train to Rome", SYSTEM, Usage(model="scripted"))
    assert change.settings == {"titles": True, "system_prompt": "Be brief."}
    assert [request.model for request in office.model.requests] == ["scripted", "scripted"]

    await name_conversation(conversation, 1, office.surroundings)
    assert len(office.model.requests) == 2, "it has a title"


async def test_what_is_asked_while_the_first_answer_is_given_keeps_no_conversation_nameless() -> None:
    office = Office()

    async def overheard(request: ModelRequest) -> ModelReply:
        await office.say(conversation, "And to Naples?")
        return says("Take the train.")

    conversation = await office.start(titles=True)
    office.model.script += [overheard, says("The bus."), says("By train to Rome")]
    async with office.working(office.worker(), office.worker()):
        await office.say(conversation, "How do I get to Rome?")
        await office.until(conversation, lambda seen: any(isinstance(event, ConversationChanged) for event in seen))
        await office.say(conversation, "Thanks")
        await office.turns_end(conversation, 3)
        await office.rests(conversation)
    assert [change.title for change in await changes(office, conversation)] == ["By train to Rome"]
    assert [person_to_be_named(request.messages) for request in office.model.requests] == [
        None, None, "How do I get to Rome?", None,
    ]  # fmt: skip


async def test_the_cheap_model_is_asked_where_there_is_one() -> None:
    office = Office()
    await named(office, says("Rome"), cheap="cheap")
    assert [request.model for request in office.model.requests] == ["scripted", "cheap"]


def test_titles_are_on_by_default_only_where_there_is_a_cheap_model() -> None:
    without = Office().surroundings
    cheap = replace(without, compaction_model="cheap")
    assert [wished(given, without) for given in ({}, {"titles": True}, {"titles": False})] == [False, True, False]
    assert [wished(given, cheap) for given in ({}, {"titles": True}, {"titles": False})] == [True, True, False]


async def test_c7_a_title_that_comes_to_nothing_is_paid_for() -> None:
    spent = Usage(model="scripted", input_tokens=70)
    for step in (says(""), ModelError("bad_request", "no", retryable=False, usage=spent)):
        office = Office()
        conversation = await named(office, step)
        *_, ended, reported = await office.log(conversation)
        assert isinstance(reported, UsageReported)
        assert (ended.wire_type, reported.purpose, reported.turn) == ("turn_ended", "title", None)

    office = Office()
    conversation = await named(office, ModelError("auth", "no", retryable=False))
    assert (await office.types(conversation))[-1] == "turn_ended"


async def test_a_title_that_a_person_gives_meanwhile_stays() -> None:
    office = Office()

    async def patched(request: ModelRequest) -> ModelReply:
        await change(office, title="Mine")
        return says("The model's")

    conversation = await named(office, patched)
    newest = (await office.log(conversation))[-1]
    assert isinstance(newest, UsageReported)
    assert (newest.purpose, newest.usage) == ("title", [Usage(model="scripted")])
    assert [event.title for event in await changes(office, conversation)] == ["Mine"]


async def test_settings_that_a_person_changes_meanwhile_stay_and_the_title_comes() -> None:
    office = Office()

    async def patched(request: ModelRequest) -> ModelReply:
        await change(office, settings={"system_prompt": "Be kind."}, metadata={"a": 1})
        return says("Rome")

    conversation = await named(office, patched, titles=True)
    newest = (await changes(office, conversation))[-1]
    assert (newest.title, newest.metadata) == ("Rome", {"a": 1})
    assert newest.settings == {"titles": True, "system_prompt": "Be kind."}


async def test_the_end_of_a_conversation_meanwhile_leaves_what_the_title_cost() -> None:
    office = Office()

    async def ended(request: ModelRequest) -> ModelReply:
        await end_conversation(office.conversations, office, only(office), EndConversation(), context())
        return says("Rome")

    conversation = await named(office, ended)
    assert (await office.types(conversation))[-2:] == ["conversation_ended", "usage_reported"]


async def change(office: Office, **fields: object) -> None:
    body = ChangeConversation.model_validate(fields)
    await change_conversation(office.conversations, office.toolset, only(office), body, context())


def only(office: Office) -> UUID:
    """Return the conversation that the office was asked to work on."""
    return office.woken[0]


def context() -> CommandContext:
    return CommandContext(LOCAL, uuid4(), "hash", keyed=False)
