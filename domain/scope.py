"""Who asks: the scope of a caller decides what is visible to them; the actor is what the log keeps of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from pydantic import BaseModel, ConfigDict

APPROVER = "approver"
ADMIN = "admin"


class Actor(BaseModel):
    """Who did something, as the metadata of an event says it: no roles, for these change and the log does not."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    kind: Literal["user", "system"]
    id: str


SYSTEM = Actor(kind="system", id="rejoinder")
"""The actor of expiry, compaction and titles."""


@dataclass(frozen=True, slots=True)
class Scope:
    """A caller: tenant, user, and roles beyond that of the owner of one's own conversations.

    What no method of this class allows is to look as if it did not exist.
    """

    tenant: str
    user: str
    roles: frozenset[str] = field(default_factory=frozenset)

    @property
    def actor(self) -> Actor:
        """The caller as the log names them."""
        return Actor(kind="user", id=self.user)

    @property
    def is_admin(self) -> bool:
        """Whether everything of the tenant, and its operations, are open."""
        return ADMIN in self.roles

    @property
    def is_approver(self) -> bool:
        """Whether the tenant's inbox and its resolutions are open."""
        return APPROVER in self.roles or self.is_admin

    def may_read(self, tenant: str, owner: str) -> bool:
        """Say whether that owner's conversation is visible: one's own, to an admin all of the tenant."""
        return tenant == self.tenant and (owner == self.user or self.is_admin)

    def may_command(self, tenant: str, owner: str) -> bool:
        """Say whether that owner's conversation takes commands of this caller: who may read may write."""
        return self.may_read(tenant, owner)

    def may_resolve(self, tenant: str, owner: str) -> bool:
        """Say whether the caller sees and decides the pending tool calls of that owner's conversation."""
        return tenant == self.tenant and (owner == self.user or self.is_approver)


LOCAL = Scope("local", "local", frozenset({ADMIN}))
"""Everybody's scope on a server without keys, which only listens to its own machine."""
