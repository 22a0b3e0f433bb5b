"""The identity of a command: a key that the caller chose makes its repeat the same command."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4, uuid5

from api.auth import scope_of
from api.errors import FieldError, InvalidRequest
from commands.context import CommandContext
from commands.create_conversation import CreateConversation
from commands.fork import Fork
from commands.send_message import SendMessage

if TYPE_CHECKING:
    from aiohttp import web

    from api.bodies import GivenBody
    from domain.scope import Scope

HEADER = "Idempotency-Key"
LONGEST_KEY = 255
COMMANDS = UUID("3ac2588a-5041-4171-9a04-55d752bf2896")
"""The namespace of command ids. They are in logs: it never changes."""


def command_context(request: web.Request, body: GivenBody[Any]) -> CommandContext:
    """Derive the command's id from ``Idempotency-Key``, else from the message's ``message_id``, else from nothing."""
    scope = scope_of(request)
    header: str | None = request.headers.get(HEADER)
    if header is not None and not (0 < len(header) <= LONGEST_KEY and header.isascii() and header.isprintable()):
        raise InvalidRequest([FieldError(HEADER, f"must be 1 to {LONGEST_KEY} printable ASCII characters")])
    message_id = _message_id(body.model)
    if header is not None:
        command_id = _command_id(scope, request.path, HEADER, header)
    elif message_id is not None:
        command_id = _command_id(scope, request.path, "message_id", message_id)
    else:
        command_id = uuid4()
    return CommandContext(scope, command_id, body.body_hash, keyed=header is not None or message_id is not None)


def _message_id(body: object) -> str | None:
    """Return the id of the message that the command sends, perhaps as a part of it."""
    sent = body.message if isinstance(body, (CreateConversation, Fork)) else body
    return sent.message_id if isinstance(sent, SendMessage) else None


def _command_id(scope: Scope, path: str, kind: str, key: str) -> UUID:
    return uuid5(COMMANDS, json.dumps([scope.tenant, scope.user, path, kind, key]))
