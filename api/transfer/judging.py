"""The judgement on a file's events that all who take one in share: each is known, readable, and goes on a sound log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import ValidationError

from api.field_errors import field_errors
from domain.event_store import NewEvent
from domain.soundness import Soundness
from domain.wire import TYPES, kind_of
from infra.storable import check_storable
from projections.event import Event

if TYPE_CHECKING:
    from collections.abc import Iterator
    from uuid import UUID

    from api.transfer.reader import Line
    from domain.conversation import Conversation
    from domain.event_envelope import ConversationEvent
    from domain.event_store import StoredEvent


class Judge:
    """One conversation's log, as far as it was judged."""

    def __init__(self, conversation_id: UUID) -> None:
        self._sound = Soundness(conversation_id)
        self._ids: set[UUID] = set()

    @property
    def conversation(self) -> Conversation:
        """What the events so far have made of it."""
        return self._sound.conversation

    def take(self, line: Line) -> tuple[Event | None, list[str]]:
        """Return the next event, None if it cannot be read, and what is wrong with it: no store may get it then."""
        event = Event(line.event, line.conversation_id)
        if fault := _unreadable(event):
            return None, [fault]
        faults = [*self._faults_of_id(event), *self._sound.faults(event.decoded)]
        return event, [f"event {event.seq}, {event.type}: {fault}" for fault in faults]

    def _faults_of_id(self, event: Event) -> Iterator[str]:
        if event.event_id in self._ids:
            yield f"an event before it has its id {event.event_id}"
        own = str(event.event_id)
        if (other := event.metadata.get("event_id", own)) != own:
            yield f"its event_id is {own}, but {other} in its metadata"
        self._ids.add(event.event_id)


def new_event(stored: StoredEvent) -> NewEvent:
    """Return the event as it is appended."""
    return NewEvent(stored.event_id, stored.type, stored.data, stored.metadata)


def _unreadable(event: Event) -> str | None:
    """Say why no store may hold an event, or this version cannot read it."""
    if (known := TYPES[kind_of(event.stored.stream)[0]].get(event.type)) is None:
        return f"this version does not know the event {event.type}: use that which exported it"
    try:
        _check(event, known)
    except ValidationError as error:
        fault = field_errors(error, {**event.metadata, **event.data}, "the event")[0]
        said = f"{fault.field}: {fault.message}"
    except ValueError as error:
        said = str(error)
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
    else:
        return None
    return f"the {event.type} cannot be read: {said}"


def _check(event: Event, known: type[ConversationEvent]) -> None:
    check_storable(event.stored.stream, [new_event(event.stored)])
    if not isinstance(event.metadata, dict):
        raise ValueError("its metadata is no object")
    if (form := event.metadata.get("schema_version", 1)) not in range(1, known.schema_version + 1):
        raise ValueError(f"this version knows its form {known.schema_version}, not {form}: use that which exported it")
    if event.occurred_at.tzinfo is None or event.decoded.timestamp != event.occurred_at:
        raise ValueError("its occurred_at is no time with a zone")
