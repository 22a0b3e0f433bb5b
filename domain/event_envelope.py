"""The envelope of every event: which conversation, which number, when, by whom, because of what."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, ClassVar
from uuid import UUID, uuid4

from eventsourcing.domain import CanMutateAggregate
from pydantic import BaseModel, ConfigDict, Field

from domain.scope import Actor

if TYPE_CHECKING:
    from domain.aggregate import OpenState


class ConversationEvent(BaseModel, CanMutateAggregate[UUID]):
    """What every event shares; the fields of its own are the event's data.

    `originator_version` is the event's seq; `timestamp` its `occurred_at`, set by the process that appends it.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True)

    wire_type: ClassVar[str]
    schema_version: ClassVar[int] = 1

    originator_id: UUID = Field(exclude=True)
    originator_version: int = Field(exclude=True)
    timestamp: datetime = Field(exclude=True)
    event_id: UUID = Field(default_factory=uuid4, exclude=True)
    correlation_id: UUID | None = Field(default=None, exclude=True)
    causation_id: UUID | None = Field(default=None, exclude=True)
    actor: Actor = Field(exclude=True)
    copied_from: UUID | None = Field(default=None, exclude=True)
    """In a fork: the event that this one is a copy of."""

    @property
    def seq(self) -> int:
        """The event's number in its conversation: 1, 2, 3 …"""
        return self.originator_version

    def apply(self, aggregate: OpenState) -> None:
        """Evolve the aggregate; assigns, never refuses."""
        aggregate.evolve(self)
