"""What the HTTP API itself refuses, before any rule of a conversation is asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence


class FieldError(NamedTuple):
    """One thing that is wrong with a request: the dotted path of the field, and what it should be."""

    field: str
    message: str


class Unauthenticated(Exception):
    """The request carries no key that this server knows."""


class Forbidden(Exception):
    """The caller is known, but may not do this at all."""


class ForeignPage(Exception):
    """A keyless server was addressed by a name that is not this machine's, or by a page of another origin."""


class NotFound(Exception):
    """There is nothing at this address."""


class UnsupportedMediaType(Exception):
    """The body is not declared to be JSON in UTF-8."""


class BodyTooLarge(Exception):
    """The body is larger than the server takes."""


class InvalidRequest(Exception):
    """Body, query or headers do not fit; every fault is named, no value is repeated."""

    def __init__(self, errors: Sequence[FieldError]) -> None:
        super().__init__("; ".join(f"{error.field}: {error.message}" for error in errors[:3]))
        self.errors = tuple(errors)


class Unready(Exception):
    """A part of the server is not fit to work."""
