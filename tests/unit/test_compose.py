"""The composition for Docker, read as the file that it is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]  # ships no types

from infra.eventstoredb_uri import parse_uri
from infra.settings import Settings, variable

TEXT = (Path(__file__).parents[2] / "docker-compose.yml").read_text("utf-8")


def composed(text: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(text)
    return found


def with_its_cluster() -> dict[str, Any]:
    """Uncomment the three nodes as the file says."""
    begin, end = TEXT.index("  # certificates:\n"), TEXT.index("\nvolumes:\n")
    nodes = re.sub(r"^  # ?", "  ", TEXT[begin:end], flags=re.MULTILINE)
    return composed(TEXT[:begin] + nodes + TEXT[end:].replace("  # kurrentdb-", "  kurrentdb-"))


def test_the_roles_are_told_what_there_is_to_tell() -> None:
    known = {variable(name) for name in Settings.model_fields}
    for role in ("api", "projector", "worker"):
        environment = composed(TEXT)["services"][role]["environment"]
        assert set(environment) <= known
        [default] = re.findall(r":-(.*)}", environment["REJOINDER_EVENT_STORE"])
        assert parse_uri(default).uri == "esdb://kurrentdb:2113?tls=false"


def test_the_commented_cluster_is_whole() -> None:
    cluster = with_its_cluster()
    nodes = [f"kurrentdb-{n}" for n in (1, 2, 3)]
    assert {*nodes, "certificates"} <= set(cluster["services"])
    assert {*nodes, "certificates"} <= set(cluster["volumes"])
    for n, node in enumerate(nodes, 1):
        environment = cluster["services"][node]["environment"]
        assert environment["KURRENTDB_GOSSIP_SEED"] == ",".join(f"{other}:2113" for other in nodes if other != node)
        assert environment["KURRENTDB_NODE_HOST_ADVERTISE_AS"] == node
        assert environment["KURRENTDB_CERTIFICATE_FILE"] == f"/certificates/node{n}/node.crt"
        assert f"{node}:/var/lib/kurrentdb" in cluster["services"][node]["volumes"]
