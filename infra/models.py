"""Which adapter answers a model call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infra.demo_model import MODEL as DEMO

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from commands.agent.model import Delta, Model, ModelReply, ModelRequest
    from domain.usage import Usage


class ModelRouter:
    """The port `Model`: the name ``demo`` goes to the demo model, every other one to LiteLLM."""

    def __init__(self, *, demo: Model, litellm: Model) -> None:
        self._demo, self._litellm = demo, litellm

    def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | Usage | ModelReply, None]:
        """Make one try with the adapter that the request's model names. Raises `ModelError`."""
        return (self._demo if request.model == DEMO else self._litellm).stream(request)
