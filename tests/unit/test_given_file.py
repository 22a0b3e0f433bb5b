"""An exported file is a test's beginning: what is given, for the rules of conversations and for projections."""

from __future__ import annotations

from typing import TYPE_CHECKING

from api.transfer.reader import read_events
from domain.events import Resolution, ToolResult
from domain.owes import CallModel
from projections.display_messages import DISPLAY_MESSAGES
from projections.testing import given_log
from tests.support.given import ADA, GATED_CALL, NOW, given_file, history, reject, stored
from tests.support.transferring import exported

if TYPE_CHECKING:
    from pathlib import Path


def test_an_exported_conversation_is_given_to_commands_and_to_projections(tmp_path: Path) -> None:
    path = exported(tmp_path / "bug.jsonl", [stored(event) for event in history(*GATED_CALL)])
    rejected = given_file(path).when(lambda c: c.resolve(reject("c1", reason="no"), now=NOW, actor=ADA))
    rejected.then(Resolution, ToolResult).and_owes(CallModel)
    given_log(read_events(path)).project(DISPLAY_MESSAGES).then(
        {"message_type": "user", "status": "completed"}, {"message_type": "tool", "status": "awaiting_input"}
    )
