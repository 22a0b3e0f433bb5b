"""Who sees what."""

from __future__ import annotations

import pytest

from domain.scope import LOCAL, Scope

ADA = Scope("acme", "ada")
APPROVER = Scope("acme", "ben", frozenset({"approver"}))
ADMIN = Scope("acme", "eve", frozenset({"admin"}))


@pytest.mark.parametrize("scope", [ADA, APPROVER, ADMIN])
def test_p1_an_owner_may_do_everything_with_their_own(scope: Scope) -> None:
    own = (scope.tenant, scope.user)
    assert scope.may_read(*own)
    assert scope.may_command(*own)
    assert scope.may_resolve(*own)


@pytest.mark.parametrize(
    ("scope", "read", "command", "resolve"),
    [(ADA, False, False, False), (APPROVER, False, False, True), (ADMIN, True, True, True)],
)
def test_p1_roles_open_what_belongs_to_others_of_the_tenant(
    scope: Scope, read: bool, command: bool, resolve: bool
) -> None:
    others = (scope.tenant, "somebody else")
    assert (scope.may_read(*others), scope.may_command(*others), scope.may_resolve(*others)) == (read, command, resolve)


@pytest.mark.parametrize("scope", [ADA, APPROVER, ADMIN, LOCAL])
def test_p1_nothing_opens_another_tenant_not_even_the_same_user_name(scope: Scope) -> None:
    for owner in (scope.user, "somebody else"):
        foreign = ("globex", owner)
        assert not scope.may_read(*foreign)
        assert not scope.may_command(*foreign)
        assert not scope.may_resolve(*foreign)


def test_l10_an_actor_carries_no_roles() -> None:
    assert ADMIN.actor.model_dump() == {"kind": "user", "id": "eve"}
