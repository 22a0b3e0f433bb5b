"""Real servers for the tests: one that is named, and those that Docker can start."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

NAMED: Final = "REJOINDER_TEST_ESDB"
IMAGES: Final = {
    "eventstore/eventstore:24.10": "EVENTSTORE",
    "docker.eventstore.com/kurrent-latest/kurrentdb:25.1": "KURRENTDB",
}
"""Images, and what the names of their settings begin with."""
PORT: Final = 2113


def real_server(which: str) -> Iterator[str]:
    """Yield the connection string of the named server ("named") or of an image's container; skip where it is not."""
    if which == "named":
        if not (uri := os.environ.get(NAMED)):
            pytest.skip(f"{NAMED} names no server")
        yield uri
        return
    if shutil.which("docker") is None or subprocess.run(["docker", "info"], capture_output=True).returncode:
        pytest.skip("there is no Docker")
    from testcontainers.core.container import DockerContainer
    from testcontainers.core.wait_strategies import HttpWaitStrategy

    prefix = IMAGES[which]
    container = (
        DockerContainer(which)
        .with_env(f"{prefix}_INSECURE", "true")
        .with_env(f"{prefix}_CLUSTER_SIZE", "1")
        .with_exposed_ports(PORT)
        .waiting_for(HttpWaitStrategy(PORT, "/health/live").for_status_code(204))
    )
    with container:
        yield f"esdb://{container.get_container_host_ip()}:{container.get_exposed_port(PORT)}?Tls=false"
