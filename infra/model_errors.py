"""What went wrong in a model call, in our words: LiteLLM's exceptions to `ModelError`, without their messages.

Those messages may hold keys and what people said. LiteLLM's classes are not to be trusted with the status either (a
401, 404 or 500 that calls itself ``invalid_request_error`` arrives as a BadRequestError of status 400), so it is read
from the provider's own error underneath.
"""

from __future__ import annotations

import math
import re
import time
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from commands.agent.model import ModelError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from commands.agent.model import FailureReason
    from domain.usage import Usage

IDENTIFIER = re.compile(r"[A-Za-z][\w.\-\[\]]{0,63}")
TOO_LONG_CODES = frozenset({"context_length_exceeded", "exceed_context_size_error"})
TRANSPORTS = frozenset({"aiohttp", "httpx", "httpcore"})


def model_error(exc: Exception, *, usage: Usage | None = None) -> ModelError:
    """Say what an exception of a call means: its reason, whether another try may help, and after how long."""
    chain = list(_chain(exc))
    status = _status(chain)
    names = _identifiers(chain)
    reason, retryable, detail = _meaning(chain, status, names)
    wait = _retry_after(chain) if retryable else None
    said = "".join(f", {name} {value}" for name, value in names.items())
    return ModelError(
        reason, f"{detail} ({type(exc).__name__}{said})", retryable=retryable, retry_after_s=wait, usage=usage
    )


def _meaning(chain: list[BaseException], status: int | None, names: dict[str, str]) -> tuple[FailureReason, bool, str]:
    """Return the reason, whether it is retryable, and what happened."""
    kinds = {type(error).__name__ for error in chain}
    refused = f"the model call was refused with status {status}"
    if "ContextWindowExceededError" in kinds or TOO_LONG_CODES.intersection(names.values()):
        return "context_window", False, refused
    if any(type(error).__name__ == "OpenAIError" and type(error).__module__ == "openai" for error in chain):
        return "auth", False, "no API key is set for the model's provider"
    if any(_is_transport(error) for error in chain):
        return "unavailable", True, "the connection to the model server failed"
    if status == 429:
        return "rate_limited", True, refused
    if status in (401, 403):
        return "auth", False, refused
    if any("LLM Provider NOT provided" in str(error) for error in chain):
        return "bad_request", False, "the model's provider is unknown; put it first, as in openai/NAME"
    if status is not None and 400 <= status < 500 and status != 408:
        return "bad_request", False, refused
    return "unavailable", True, "the model call failed" + (f" with status {status}" if status else "")


def _is_transport(error: BaseException) -> bool:
    kind = type(error)
    return kind.__module__.partition(".")[0] in TRANSPORTS and kind.__name__ != "HTTPStatusError"


def _chain(exc: BaseException) -> Iterator[BaseException]:
    """Yield an exception and all that it was made from, outermost first."""
    waiting: list[BaseException | None] = [exc]
    seen: set[int] = set()
    while waiting:
        error = waiting.pop(0)
        if error is not None and id(error) not in seen:
            seen.add(id(error))
            yield error
            waiting += [getattr(error, "original_exception", None), error.__cause__, error.__context__]


def _status(chain: list[BaseException]) -> int | None:
    """Return the HTTP status that the server sent; LiteLLM's own classes come last, for they make theirs up."""
    made_up = [error for error in chain if type(error).__module__ == "litellm.exceptions"]
    for error in [error for error in reversed(chain) if error not in made_up] + made_up:
        status = getattr(error, "status_code", None)
        if isinstance(status, int) and 400 <= status < 600:
            return status
    return None


def _identifiers(chain: list[BaseException]) -> dict[str, str]:
    """Return the machine-readable names in the provider's error, and nothing that could be anybody's text."""
    found: dict[str, str] = {}
    for error in chain:
        body: Any = getattr(error, "body", None)
        given = body.get("error", body) if isinstance(body, dict) else None
        if isinstance(given, dict):
            found |= {name: given[name] for name in ("type", "code", "param") if isinstance(given.get(name), str)}
    return {name: text for name, text in found.items() if IDENTIFIER.fullmatch(text)}


def _retry_after(chain: list[BaseException]) -> float | None:
    """Return the seconds that the server asked to wait."""
    for error in chain:
        for headers in (
            getattr(error, "litellm_response_headers", None),
            getattr(getattr(error, "response", None), "headers", None),
        ):
            if headers and (value := headers.get("retry-after") or headers.get("Retry-After")):
                return _seconds(value)
    return None


def _seconds(value: str) -> float | None:
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(value).timestamp() - time.time()
        except ValueError:
            return None
    return max(0.0, seconds) if math.isfinite(seconds) else None
