"""The connection string of EventStoreDB or KurrentDB: checked before anything is opened, shown without its password."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlsplit, urlunsplit

SCHEMES = ("esdb", "kurrentdb", "kdb")
DISCOVER = "+discover"
EXAMPLE = "esdb://user:password@host:2113"
ENCODED = "special characters of a password are percent-encoded"

FLAGS, NUMBERS, FILES = (
    ("tls", "tlsverifycert"),
    ("maxdiscoverattempts", "discoveryinterval", "gossiptimeout", "defaultdeadline", "keepaliveinterval",
     "keepalivetimeout"),
    ("tlscafile", "usercertfile", "userkeyfile"),
)  # fmt: skip
OPTIONS = (*FLAGS, *NUMBERS, *FILES, "nodepreference", "connectionname")


@dataclass(frozen=True, slots=True)
class EventStoreDBUri:
    """What it says: `uri` as the clients take it; user and password as they are meant, percent signs decoded."""

    uri: str
    user: str
    password: str


def parse_uri(text: str) -> EventStoreDBUri:
    """Read a connection string; `ValueError` says what is wrong with it, without repeating any part of it."""
    parts = _split(text)
    scheme, discover = parts.scheme.removesuffix(DISCOVER), parts.scheme.endswith(DISCOVER)
    if scheme not in SCHEMES:
        schemes = ", ".join(f"{one}://" for one in SCHEMES)
        _refuse(f"begins with none of {schemes} (or the same with {DISCOVER} before the colon)")
    login, _, places = parts.netloc.rpartition("@")
    hosts = places.split(",")
    if not all(_is_place(host) for host in hosts):
        _refuse(f"names no server as in {EXAMPLE} ({ENCODED})")
    if discover and len(hosts) > 1:
        _refuse(f"names several hosts with {DISCOVER}, which takes one name of all nodes")
    if parts.path.strip("/") or parts.fragment:
        _refuse(f"has something after its server that is not in {EXAMPLE} ({ENCODED})")
    options = {name.lower(): value for name, value in parse_qsl(parts.query, keep_blank_values=True)}
    _check(options)
    user, _, password = login.partition(":")
    tls = options.get("tls", "true").lower() == "true"
    if tls and not (user and password):
        _refuse(f"lacks user and password, {EXAMPLE}; a server without TLS and passwords is named with ?tls=false")
    if not tls and login:
        _refuse("has a password and tls=false: passwords go only over TLS")
    user, password = unquote(user), unquote(password)
    # encoded anew: the clients take what follows the first @, be it of the password, for the server's name
    login = f"{quote(user, safe='')}:{quote(password, safe='')}@" if login else ""
    uri = urlunsplit(parts._replace(scheme="esdb" + DISCOVER * discover, netloc=login + places, path=""))
    return EventStoreDBUri(uri, user, password)


def masked_uri(text: str, mask: str) -> str:
    """Return a connection string that was checked with a mask for its password."""
    parts = urlsplit(text)
    login, at, places = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=f"{login.partition(':')[0]}:{mask}@{places}" if at else places))


def _split(text: str) -> SplitResult:
    with suppress(ValueError):  # it repeats what it does not like, be it a part of the password
        return urlsplit(text)
    _refuse(f"is not like {EXAMPLE} ({ENCODED})")


def _is_place(host: str) -> bool:
    found = re.fullmatch(r"[\w.-]+(?::(\d{1,5}))?", host, re.ASCII)
    return found is not None and 1 <= int(found[1] or 1) <= 65535


def _check(options: dict[str, str]) -> None:
    for name, value in options.items():
        if name not in OPTIONS:
            _refuse(f"has an unknown option; there are {', '.join(OPTIONS)}")
        if name in FLAGS and value.lower() not in ("true", "false"):
            _refuse(f"has another value than true or false for {name}")
        if name in NUMBERS and not re.fullmatch(r"[1-9]\d{0,8}", value, re.ASCII):
            _refuse(f"has no whole number above 0 for {name}")
        if name in FILES and not Path(value).is_file():
            _refuse(f"names a {name} that is not there")
    if options.get("nodepreference", "leader").lower() != "leader":
        _refuse("prefers other nodes than the leader: what was written must be read")
    if options.get("tlsverifycert", "true").lower() != "true":
        _refuse("leaves certificates unverified: name their authority by tlscafile instead")
    if ("usercertfile" in options) != ("userkeyfile" in options):
        _refuse("names one of usercertfile and userkeyfile without the other")


def _refuse(problem: str) -> NoReturn:
    raise ValueError(problem)
