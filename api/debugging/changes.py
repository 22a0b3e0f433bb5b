"""A log in memory with changes to it: events that are dropped, that say something else, or that come after the last."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID, uuid5

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from api.errors import FieldError, InvalidRequest
from api.field_errors import field_errors
from domain.event_envelope import ConversationEvent
from domain.event_store import StoredEvent
from domain.events import EVENT_TYPES
from domain.scope import Actor
from domain.wire import decode_parsed, dumps
from projections.event import Event

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST = 1_000
Seq = Annotated[int, Field(ge=1, le=2**31 - 1)]
_ENVELOPE = frozenset(ConversationEvent.model_fields)


class AppendedEvent(BaseModel):
    """An event that comes after the last, as the log shows one: of its metadata only the actor and the ids count.

    Without an actor it is the conversation's owner, without a time that of the event before it. What else the log shows
    of an event is ignored.
    """

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    type: str
    data: dict[str, Any] = {}
    metadata: dict[str, Any] = {}
    occurred_at: AwareDatetime | None = None
    seq: int | None = None
    position: int | None = None
    conversation_id: UUID | None = None


class Changes(BaseModel):
    """What would be different. `replace` gives fields of events other values (null: none), the rest of them stays.

    `at`: look at the conversation as it was after that event; without it, as it is now.
    """

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    drop: Annotated[list[Seq], Field(max_length=MOST)] = []
    replace: Annotated[dict[Seq, dict[str, Any]], Field(max_length=MOST)] = {}
    append: Annotated[list[AppendedEvent], Field(max_length=MOST)] = []
    at: Seq | None = None

    @property
    def seqs(self) -> set[int]:
        """Which events are dropped or say something else."""
        return {*self.drop, *self.replace}


def check_seqs(changes: Changes, last_seq: int) -> None:
    """Raise `InvalidRequest` naming every seq that is not there, or that is both dropped and replaced."""
    faults = []
    if changes.at is not None and changes.at > last_seq:
        faults.append(FieldError("at", f"is beyond the newest event, {last_seq}"))
    newest = min(changes.at or last_seq, last_seq)
    named = [(f"drop.{index}", seq) for index, seq in enumerate(changes.drop)]
    named += [(f"replace.{seq}", seq) for seq in changes.replace]
    faults += [FieldError(name, f"is beyond the newest event, {newest}") for name, seq in named if seq > newest]
    faults += [FieldError(f"replace.{seq}", "is dropped too") for seq in changes.replace if seq in changes.drop]
    if faults:
        raise InvalidRequest(faults)


def replaced(event: Event, data: Mapping[str, Any]) -> Event:
    """Return the event with these fields of its data; raises `InvalidRequest` if they do not fit its type."""
    merged = {name: value for name, value in {**event.data, **data}.items() if value is not None}
    stored = replace(event.stored, data=dumps(merged))
    return _checked(stored, event.conversation_id, merged, event.metadata, f"replace.{event.seq}")


def appended(change: AppendedEvent, before: Event, owner: str, index: int) -> Event:
    """Return the event that comes after another; raises `InvalidRequest` if it is none."""
    where = f"append.{index}"
    if change.type not in EVENT_TYPES:
        raise InvalidRequest([FieldError(f"{where}.type", f"is none of {', '.join(EVENT_TYPES)}")])
    conversation_id = before.conversation_id
    event_id = uuid5(conversation_id, f"what-if {index}")
    try:
        actor = Actor.model_validate(change.metadata.get("actor") or {"kind": "user", "id": owner})
    except ValidationError as error:
        raise InvalidRequest(_under(f"{where}.metadata.actor", error, change.metadata["actor"])) from None
    occurred_at = change.occurred_at or before.occurred_at
    metadata = {
        "event_id": str(event_id),
        "occurred_at": occurred_at.isoformat(),
        "correlation_id": str(event_id),
        "actor": actor.model_dump(),
        "schema_version": EVENT_TYPES[change.type].schema_version,
    }
    stored = StoredEvent(
        before.stored.stream,
        before.seq + 1,
        before.position,
        event_id,
        change.type,
        dumps(change.data),
        dumps(metadata),
    )
    return _checked(stored, conversation_id, change.data, metadata, f"{where}.data")


def _checked(
    stored: StoredEvent, conversation_id: UUID, data: Mapping[str, Any], metadata: Mapping[str, Any], where: str
) -> Event:
    known = EVENT_TYPES[stored.type].model_fields.keys() - _ENVELOPE
    if unknown := sorted(data.keys() - known):
        raise InvalidRequest([FieldError(f"{where}.{name[:100]}", f"no {stored.type} has it") for name in unknown])
    try:
        decode_parsed(stored, conversation_id, data, metadata)
    except ValidationError as error:
        raise InvalidRequest(_under(where, error, data)) from None
    return Event(stored, conversation_id)


def _under(where: str, error: ValidationError, given: object) -> list[FieldError]:
    """Name faults by their path in the whole."""
    return [
        FieldError(f"{where}.{fault.field}" if fault.field else where, fault.message)
        for fault in field_errors(error, given, "")
    ]
