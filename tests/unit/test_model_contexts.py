"""What is kept of a conversation from one runner to the next: the same requests, with less to read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from commands.agent import contexts
from commands.change_conversation import ChangeConversation, change_conversation
from commands.context import CommandContext
from domain.scope import LOCAL
from domain.working_set import working_set
from infra.memory_event_store import MemoryEventStore
from tests.support.agents import Office, says

if TYPE_CHECKING:
    from uuid import UUID

    import pytest

    from domain.event_store import StoredEvent


class Counting(MemoryEventStore):
    """A store that notes how many events of the past were read."""

    def __init__(self) -> None:
        super().__init__()
        self.past = 0

    async def read(self, stream: str, **interval: Any) -> list[StoredEvent]:
        found = await super().read(stream, **interval)
        if interval.get("first"):
            self.past += len(found)
        return found


async def turns(office: Office, conversation: UUID, number: int) -> None:
    for n in range(number):
        await office.say(conversation, f"message {n}")
        await (await office.runner(conversation)).run()


async def is_whole(office: Office, conversation: UUID, **settings: Any) -> bool:
    """Say whether the newest request was what the whole log before its reply makes."""
    log = (await office.log(conversation))[:-2]
    request = office.model.requests[-1]
    return list(request.messages) == working_set(log, system_prompt=settings.get("system_prompt"), model=request.model)


async def test_the_next_runner_reads_nothing_again() -> None:
    office = Office(store=(store := Counting()))
    conversation = await office.start()
    await turns(office, conversation, 20)

    assert store.past == 0
    assert await is_whole(office, conversation)


async def test_what_another_process_did_meanwhile_is_read() -> None:
    here, there = Office(store=Counting()), Office()
    there.store = here.store
    there.__post_init__()
    conversation = await here.start()
    await turns(here, conversation, 2)
    await turns(there, conversation, 30)
    await turns(here, conversation, 1)

    assert await is_whole(here, conversation)


async def test_other_settings_make_other_requests_of_the_same_history() -> None:
    office = Office(store=Counting())
    conversation = await office.start()
    await turns(office, conversation, 3)
    body = ChangeConversation(settings={"system_prompt": "Be brief.", "model": "other"})
    context = CommandContext(LOCAL, conversation, "", keyed=False)
    await change_conversation(office.conversations, office.toolset, conversation, body, context)
    await turns(office, conversation, 1)

    assert office.model.requests[-1].model == "other"
    assert await is_whole(office, conversation, system_prompt="Be brief.")


async def test_only_so_many_conversations_and_short_ones_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contexts, "MOST", 2)
    office = Office(store=(store := Counting()))
    first, *others = [await office.start() for _ in range(3)]
    for conversation in (first, *others):
        await turns(office, conversation, 20)
    assert store.past == 0
    await turns(office, first, 1)
    read = store.past
    assert read > 0, "it was the oldest"

    monkeypatch.setattr(contexts, "MOST_EVENTS", 10)
    await turns(office, first, 1)
    assert store.past == read
    await turns(office, first, 1)
    assert store.past > read, "it is too long by now"


async def test_a_worker_without_a_free_slot_leaves_hints_to_all() -> None:
    office = Office()
    office.model.script.append(says("Yes."))
    conversation = await office.start()
    busy, free = office.worker(concurrency=0), office.worker(concurrency=1)
    session = await office.conversations.load(conversation)
    assert not busy.hint(session)
    assert free.hint(session)
    assert not free.hint(session), "the slot is spoken for"

    office.conversations.nearby = free.hint
    await office.say(conversation, "Hello")
    assert office.woken == [conversation]
