"""TLS and passwords of the double: a certificate authority of its own, and basic credentials as the server's."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import grpc
import trustme

from tests.support.eventstoredb.refusals import Refused

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


@dataclass(frozen=True)
class Security:
    """Who may do what: with these users nobody else; their passwords go over TLS only."""

    users: dict[str, str] = field(default_factory=lambda: {"admin": "changeit"})

    @cached_property
    def _authority(self) -> trustme.CA:
        return trustme.CA()

    def write_authority(self, path: Path) -> None:
        """Write the certificate that a client has to trust."""
        self._authority.cert_pem.write_to_path(str(path))

    def credentials(self) -> grpc.ServerCredentials:
        """Return the server's certificate and key."""
        issued = self._authority.issue_cert("127.0.0.1", "localhost")
        chain = b"".join(pem.bytes() for pem in issued.cert_chain_pems)
        return grpc.ssl_server_credentials([(issued.private_key_pem.bytes(), chain)])

    def allows(self, metadata: Iterable[tuple[str, str | bytes]] | None) -> bool:
        """Say whether a caller gave a password at all; raises `Refused` for a wrong one."""
        given = {name: value for name, value in metadata or () if name == "authorization"}
        if not given:
            return False
        right = {"Basic " + b64encode(f"{name}:{word}".encode()).decode() for name, word in self.users.items()}
        if given["authorization"] not in right:
            raise Refused("UNAUTHENTICATED", "Unauthenticated")
        return True
