"""Forks: go on from an earlier point of a conversation in another one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import hdrs

from api.answers import accepted
from api.endpoints import command
from api.resources import resources
from api.routes.conversations import CONVERSATION, CONVERSATIONS, Created
from api.routing import Route, conversation_id_of
from commands.fork import Fork
from commands.fork import fork as fork_conversation

if TYPE_CHECKING:
    from aiohttp import web

    from commands.context import CommandContext


@command("POST", f"{CONVERSATION}/fork", Fork, answers={201: Created})
async def fork(request: web.Request, body: Fork, context: CommandContext) -> web.Response:
    """Begin another conversation as a copy of this one up to an event, or up to before a message.

    What is copied keeps its times, and its usage counts where it arose. A message that came while a turn ran is left
    out and the turn stays, unless the turn saw the message: then the fork begins before that turn. A repeat under the
    same `Idempotency-Key` finishes a fork that was broken off; until it is whole it takes no commands (409).
    With `message` it goes on at once: a message is edited and sent again in one call. Both know of each other:
    `forked_from` of the new one, `forks` of the old one.
    """
    receipt = await fork_conversation(resources(request).conversations, conversation_id_of(request), body, context)
    return accepted(receipt, 201, {hdrs.LOCATION: f"{CONVERSATIONS}/{receipt.conversation_id}"})


ROUTES: tuple[Route, ...] = (fork,)
"""The routes of this module."""
