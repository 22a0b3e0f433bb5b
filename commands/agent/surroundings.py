"""What a runner works with: the ports, and the server's defaults for what a conversation does not set."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from commands.agent.audit import audited
from commands.agent.contexts import ModelContexts
from domain.hooks import NO_HOOKS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from datetime import datetime

    from commands.agent.audit import Audit, CallAbout
    from commands.agent.live import LiveTurns
    from commands.agent.model import Model
    from commands.conversations import Conversations
    from domain.conversation import Conversation
    from domain.hooks import Hooks
    from domain.scope import Actor, Scope
    from domain.tools import Toolset

    Decide = Callable[[Conversation, datetime], Any]
    """A decision: it triggers events on the conversation, or raises `Superseded`; run again after a lost race."""
    Recorder = Callable[[Decide], Awaitable[None]]
    """Has a decision appended and returns when it is durable."""


class ScopeResolver(Protocol):
    """Looks up what an actor may do now; roles are never in the log."""

    async def resolve(self, tenant: str, actor: Actor) -> Scope:
        """Return the scope as which a tool runs."""
        ...


class Windows(Protocol):
    """Knows how large models' windows are, without asking anybody."""

    async def window_of(self, model: str) -> int | None:
        """Return how many tokens a request to the model may have; None for a model that is not known."""
        ...


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Everything that the agent needs from outside of the conversation that it works on."""

    conversations: Conversations
    model: Model
    toolset: Toolset
    live: LiveTurns
    scopes: ScopeResolver
    default_model: str
    approval_timeout_s: float
    compaction_model: str | None = None
    """What summarises where a conversation names no other; None: its own model."""
    windows: Windows | None = None
    hooks: Hooks = NO_HOOKS
    audit: Audit | None = None
    contexts: ModelContexts = field(init=False)

    def __post_init__(self) -> None:
        """Begin with nothing kept of any conversation."""
        object.__setattr__(self, "contexts", ModelContexts(self.conversations.store))

    def model_for(self, about: CallAbout) -> Model:
        """Return the model for the tries of one call, which the audit takes notes of, if there is one."""
        return audited(self.model, self.audit, about)

    async def window_of(self, model: str) -> int | None:
        """Return how many tokens a request to the model may have, None where that is not known."""
        return await self.windows.window_of(model) if self.windows else None
