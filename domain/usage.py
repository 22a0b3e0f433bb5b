"""What a model call used: tokens and cost."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Usage(BaseModel):
    """Tokens of one or more calls and their cost in US dollars at the time of the call; None = not reported."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    model: str | None = None
    calls: int = 1
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cost_usd: float | None = None

    @property
    def tokens(self) -> int:
        """All tokens: those that were read, cached ones too, and those that were written."""
        return self.input_tokens + self.output_tokens
