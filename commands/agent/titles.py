"""Giving a conversation its title after its first answer: beside all that matters, once, and owed to nobody."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from commands.agent.audit import CallAbout
from commands.agent.model import ModelError, ModelRequest
from commands.agent.model_call import call_model
from commands.agent.spending import Spending
from commands.agent.stopping import stop
from commands.log_context import log_with
from commands.ports import TooManyRaces
from commands.session import Session
from domain.conversation import Conversation
from domain.errors import ConversationNotFound, UnknownEventType
from domain.event_store import StoreError
from domain.parts import text_of
from domain.titles import cleaned_title, first_completed, is_named, title_messages, wants_title
from domain.wire import decode, stream_of

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from commands.agent.surroundings import Surroundings
    from domain.event_envelope import ConversationEvent

logger = logging.getLogger(__name__)

AT_ONCE = 4
WAITING = 100
"""So many conversations may wait for a title; those that come then get none."""
YOUNG, MAX_EVENTS = 5, 1_000
"""After more turns, or in a conversation of more events, it is not even asked whether this was the first answer."""
MAX_TOTAL_S = 60.0


class Titles:
    """Names conversations in the background of a worker; what is not done when it stops is never done."""

    def __init__(self, surroundings: Surroundings) -> None:
        self._surroundings = surroundings
        self._tasks: set[asyncio.Task[None]] = set()
        self._slots = asyncio.Semaphore(AT_ONCE)

    def begin(self, answered: Session) -> None:
        """Name a conversation if the first turn that was just completed is its first one; returns at once.

        Only who completed that turn comes with it, so it is tried once, whoever works on the conversation later.
        """
        conversation, ended = answered.conversation, first_completed(answered.news)
        if ended is None or ended.turn > YOUNG or conversation.ended:
            return
        if wished(conversation.settings, self._surroundings) and len(self._tasks) < WAITING:
            task = asyncio.create_task(self._name(conversation.id, ended.turn), name=f"title of {conversation.id}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        """Stop at once."""
        await stop(self._tasks)

    async def _name(self, conversation_id: UUID, turn: int) -> None:
        log_with(conversation_id=str(conversation_id))
        async with self._slots:
            try:
                await name_conversation(conversation_id, turn, self._surroundings)
            except (ConversationNotFound, UnknownEventType, StoreError, TooManyRaces) as error:
                logger.info("a conversation stays without a title: %s", error, extra={"action": "title_given_up"})
            except Exception:
                logger.exception("a conversation could not be named", extra={"action": "title_failed"})


async def name_conversation(conversation_id: UUID, turn: int, surroundings: Surroundings) -> None:
    """Ask a model for the title and record it with what it cost; a title that a person gave meanwhile stays.

    Nothing happens unless `turn` was the first to be completed. What was used is recorded where there comes no title of
    it too. Raises `ConversationNotFound`, `UnknownEventType`, `StoreError`, `TooManyRaces`.
    """
    conversations = surroundings.conversations
    stored = await conversations.store.read(stream_of(conversation_id), limit=MAX_EVENTS + 1)
    if not stored or stored[0].seq > 1 or len(stored) > MAX_EVENTS:
        return
    log = [decode(event) for event in stored]
    conversation = Conversation.at(conversation_id).fold(log)
    if not wants_title(log, turn):
        return
    session = Session(conversations.store, conversations.clock, conversation, stored[-1].position)
    spending = Spending()
    title: str | None = None

    def decide(current: Conversation, now: datetime) -> None:
        named = is_named(session.news)
        current.entitle(None if named else title, spending.of_model, now=now)

    try:
        title = await _proposed(log, conversation.settings, surroundings, spending)
    finally:  # broken off, it has no title, and yet a cost
        await session.append(decide)


def wished(settings: dict[str, Any], surroundings: Surroundings) -> bool:
    """Say whether a conversation with these settings is to be named: by default where there is a cheap model for it."""
    return bool(settings.get("titles", surroundings.compaction_model is not None))


async def _proposed(
    log: list[ConversationEvent], settings: dict[str, Any], surroundings: Surroundings, spending: Spending
) -> str | None:
    model = surroundings.compaction_model or settings.get("model") or surroundings.default_model
    request = ModelRequest(model, title_messages(log), max_total_s=MAX_TOTAL_S)
    try:
        reply = await call_model(
            [model],
            surroundings.model_for(CallAbout(conversation_id=log[0].originator_id, purpose="title")),
            lambda name: request,
            spending,
            on_delta=lambda delta: None,
            on_restart=lambda number: None,
        )
    except ModelError as error:
        logger.info("no title: %s", error, extra={"action": "title_given_up", "reason": error.reason})
        return None
    return cleaned_title(text_of(reply.content))
