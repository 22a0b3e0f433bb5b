"""Fixtures for tests that talk to the scripted model server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from infra.litellm_model import LiteLLMModel
from tests.support.model_server import ModelServer, serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
async def model_server() -> AsyncIterator[ModelServer]:
    """A scripted model server in the test's own loop."""
    async with serving() as server:
        yield server


@pytest.fixture
async def litellm_model(model_server: ModelServer) -> AsyncIterator[LiteLLMModel]:
    """The LiteLLM adapter, connected with the scripted server."""
    model = LiteLLMModel(api_base=model_server.url, api_key="sk-test-secret")
    yield model
    await model.close()
