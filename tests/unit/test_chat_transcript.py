"""Live words on paper: each once, whatever deltas were lost, repeated or begun again."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest
from rich.console import Console

from api.cli.transcript import Transcript
from domain import events
from domain.parts import text_part
from domain.scope import SYSTEM

ENVELOPE: dict[str, Any] = {
    "originator_id": uuid4(),
    "originator_version": 4,
    "timestamp": datetime(2026, 1, 1, tzinfo=UTC),
    "actor": SYSTEM,
}


@pytest.fixture
def paper() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def transcript(paper: io.StringIO) -> Transcript:
    return Transcript(Console(file=paper, highlight=False, markup=False, emoji=False))


def live(text: str, *, step: int = 1, kind: str = "text") -> dict[str, Any]:
    return {"turn": 1, "step": step, "attempt": 1, "try": 1, "index": 1, "kind": kind, "text": text}


def reply(text: str, *, step: int = 1) -> events.AssistantMsg:
    said = {"content": [text_part(text)], "model": "m", "finish_reason": "stop", "context_seq": 3}
    return events.AssistantMsg.model_validate({**ENVELOPE, "turn": 1, "attempt": 1, "step": step, **said})


def test_deltas_are_written_as_they_come_and_the_reply_adds_what_was_missing(
    transcript: Transcript, paper: io.StringIO
) -> None:
    transcript.live("delta", live("One\n\n"))
    assert paper.getvalue() == "agent: One\n\n"
    transcript.live("delta", live("two"))
    transcript.event(reply("One\n\ntwo three"))
    transcript.event(reply("Next", step=2))

    assert paper.getvalue() == "agent: One\n\ntwo three\nagent: Next\n"


def test_w2_a_partial_adds_what_it_has_beyond_what_was_written(transcript: Transcript, paper: io.StringIO) -> None:
    transcript.live("partial", live("One two"))
    transcript.live("partial", live("One two three"))
    transcript.live("delta", live(" four"))
    transcript.event(reply("One two three four"))

    assert paper.getvalue() == "agent: One two three four\n"


def test_w2_a_run_that_begins_again_is_written_anew(transcript: Transcript, paper: io.StringIO) -> None:
    transcript.live("delta", live("One"))
    transcript.live("partial", live(""))
    transcript.live("delta", live("Uno"))
    transcript.event(reply("Uno"))

    assert paper.getvalue() == "agent: One\n(it begins again)\nagent: Uno\n"


def test_thoughts_are_told_from_words(transcript: Transcript, paper: io.StringIO) -> None:
    transcript.live("delta", live("Hm", kind="thinking"))
    transcript.live("delta", live("Yes"))
    transcript.event(reply("Yes"))

    assert paper.getvalue() == "thinking: Hm\nagent: Yes\n"


def test_what_a_cancelled_reply_had_said_is_completed(transcript: Transcript, paper: io.StringIO) -> None:
    transcript.live("delta", live("One"))
    ended = {"turn": 1, "outcome": "cancelled", "partial_text": "One two"}
    transcript.event(events.TurnEnded.model_validate(ENVELOPE | ended))

    assert paper.getvalue() == "agent: One two\n(cancelled)\n"


def test_beside_a_line_that_is_typed_a_reply_comes_whole_above_it(transcript: Transcript, paper: io.StringIO) -> None:
    with transcript.prompting(lambda: "> hel"):
        transcript.live("delta", live("One "))
    transcript.live("delta", live("two"))
    assert paper.getvalue() == ""
    with transcript.prompting(lambda: "> hel"):
        transcript.event(reply("One two"))

    assert paper.getvalue() == "\r\x1b[Kagent: One two\n> hel"
