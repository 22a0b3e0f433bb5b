"""API keys: the file that maps the hash of each key to a scope, and new entries for it. No key is stored anywhere."""

from __future__ import annotations

import hashlib
import secrets
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, ConfigDict, StringConstraints, TypeAdapter, ValidationError

from domain.scope import Scope

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

Role = Literal["approver", "admin"]
Name = Annotated[str, StringConstraints(min_length=1, max_length=200)]


class KeysError(Exception):
    """The keys file cannot be used; the message names the file and the entry, and repeats no value."""


class KeyEntry(BaseModel):
    """One entry of the keys file."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    key_sha256: Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")]
    tenant: Name
    user: Name
    roles: frozenset[Role] = frozenset()


class ApiKeys:
    """The keys that a server knows."""

    def __init__(self, entries: Iterable[KeyEntry]) -> None:
        self._scopes = {entry.key_sha256: Scope(entry.tenant, entry.user, frozenset(entry.roles)) for entry in entries}
        self._roles: dict[tuple[str, str], frozenset[str]] = {}
        for scope in self._scopes.values():
            person = scope.tenant, scope.user
            self._roles[person] = self._roles.get(person, frozenset()) | scope.roles

    def roles_of(self, tenant: str, user: str) -> frozenset[str]:
        """Return the roles that a person has by any of their keys."""
        return self._roles.get((tenant, user), frozenset())

    def scope_of(self, key: str) -> Scope | None:
        """Return the scope of a key, None for an unknown one.

        The time that the lookup takes says nothing: what is compared is a hash, which a guesser cannot steer.
        """
        return self._scopes.get(_sha256(key))


def load_keys(path: Path) -> ApiKeys:
    """Read a keys file: a JSON list of {key_sha256, tenant, user, roles}. Raises `KeysError`."""
    try:
        entries = TypeAdapter(list[KeyEntry]).validate_json(path.read_bytes())
    except OSError as exc:
        raise KeysError(f"cannot read the keys file {path}: {exc.strerror}") from exc
    except ValidationError as exc:
        problem = exc.errors(include_input=False, include_url=False, include_context=False)[0]
        place = "".join(f" {part}" if isinstance(part, str) else f" entry {part + 1}" for part in problem["loc"])
        raise KeysError(f"the keys file {path} is wrong{f' in{place}' if place else ''}: {problem['msg']}") from exc
    hashes = [entry.key_sha256 for entry in entries]
    if len(set(hashes)) < len(hashes):
        raise KeysError(f"the keys file {path} has two entries for one key: remove one")
    return ApiKeys(entries)


def create_key(tenant: str, user: str, roles: Iterable[str] = ()) -> tuple[str, KeyEntry]:
    """Return a new random key, to be shown once, and its entry for the keys file. Raises `KeysError` on bad names."""
    key = f"rj_{secrets.token_urlsafe(32)}"
    try:
        entry = KeyEntry.model_validate(
            {"key_sha256": _sha256(key), "tenant": tenant, "user": user, "roles": sorted(set(roles))}
        )
    except ValidationError as exc:
        problem = exc.errors(include_input=False, include_url=False, include_context=False)[0]
        raise KeysError(f"cannot create the key: {problem['loc'][0]}: {problem['msg']}") from exc
    return key, entry


def _sha256(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()
