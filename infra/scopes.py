"""Roles at run time: what the actor of a tool call may do, looked up per call and never kept in the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from domain.scope import ADMIN, Scope

if TYPE_CHECKING:
    from domain.scope import Actor
    from infra.keys import ApiKeys


class KeysScopeResolver:
    """Gives an actor the roles that the keys file gives the user now; without a file everybody is the local admin."""

    def __init__(self, keys: ApiKeys | None) -> None:
        self._keys = keys

    async def resolve(self, tenant: str, actor: Actor) -> Scope:
        """Return the scope as which a tool runs; the system has no roles."""
        if actor.kind == "system":
            return Scope(tenant, actor.id)
        if self._keys is None:
            return Scope(tenant, actor.id, frozenset({ADMIN}))
        return Scope(tenant, actor.id, self._keys.roles_of(tenant, actor.id))
