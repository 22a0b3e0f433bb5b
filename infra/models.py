"""Which adapter answers a model call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from commands.agent.model import Model
from commands.agent.surroundings import Windows
from infra.demo_model import MODEL as DEMO

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from commands.agent.model import Delta, ModelReply, ModelRequest
    from domain.usage import Usage


class KnownModel(Model, Windows, Protocol):
    """A model whose window is known."""


class ModelRouter:
    """The port `Model`: the name ``demo`` goes to the demo model, every other one to LiteLLM."""

    def __init__(self, *, demo: Model, litellm: KnownModel) -> None:
        self._demo, self._litellm = demo, litellm

    async def window_of(self, model: str) -> int | None:
        """Return how many tokens a request to the model may have, None where that is not known."""
        return None if model == DEMO else await self._litellm.window_of(model)

    def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | Usage | ModelReply, None]:
        """Make one try with the adapter that the request's model names. Raises `ModelError`."""
        return (self._demo if request.model == DEMO else self._litellm).stream(request)
