"""What a line of log looks like."""

from __future__ import annotations

import json
import logging

from commands.log_context import log_with
from infra.log_setup import JsonLines, TextLines

RECORD = logging.makeLogRecord(
    {"name": "api.x", "levelname": "INFO", "msg": "did %s", "args": ("it",), "action": "done", "created": 0.0}
)


async def test_a_line_for_machines_has_the_action_and_what_was_worked_for() -> None:
    log_with(conversation_id="c1")
    log_with(turn=3)

    assert json.loads(JsonLines().format(RECORD)) == {
        "time": "1970-01-01T00:00:00.000Z",
        "level": "INFO",
        "logger": "api.x",
        "message": "did it",
        "conversation_id": "c1",
        "turn": 3,
        "action": "done",
    }


async def test_a_line_for_people_is_a_sentence_with_its_ids() -> None:
    assert TextLines().format(RECORD) == "1970-01-01T00:00:00.000Z INFO    did it"
    log_with(conversation_id="c1", turn=3)
    assert TextLines().format(RECORD) == "1970-01-01T00:00:00.000Z INFO    did it [conversation_id=c1 turn=3]"
