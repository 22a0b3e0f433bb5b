"""The writer of exported files."""

from __future__ import annotations

from datetime import UTC, datetime
from hashlib import sha256
from typing import TYPE_CHECKING

from api.transfer.lines import End, Header, end_line, event_line, header_line
from domain.wire import kind_of

if TYPE_CHECKING:
    from typing import BinaryIO
    from uuid import UUID

    from domain.event_store import StoredEvent


class ExportWriter:
    """Writes events as they come, one conversation's after another's; without `finish` the file counts as cut off."""

    def __init__(self, out: BinaryIO, log_id: UUID) -> None:
        self._out, self._hash = out, sha256()
        self._conversation: UUID | None = None
        self._conversations = self.events = 0
        self._write(header_line(Header(log_id, datetime.now(UTC))))

    def write(self, event: StoredEvent) -> None:
        """Write the next event of the same conversation, or the first of another one."""
        _, conversation_id = kind_of(event.stream)
        if conversation_id != self._conversation:
            self._conversation, self._conversations = conversation_id, self._conversations + 1
        self.events += 1
        self._write(event_line(event))

    def finish(self) -> None:
        """Say that this was all."""
        self._out.write(end_line(End(self._conversations, self.events, self._hash.hexdigest())))
        self._out.flush()

    def _write(self, line: bytes) -> None:
        self._hash.update(line)
        self._out.write(line)
