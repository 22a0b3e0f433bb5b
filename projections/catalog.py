"""The read models that Rejoinder comes with."""

from __future__ import annotations

from projections.agenda import AGENDA
from projections.commands import COMMANDS
from projections.conversations import CONVERSATIONS
from projections.display_messages import DISPLAY_MESSAGES
from projections.summaries import SUMMARIES
from projections.tool_calls import TOOL_CALLS
from projections.usage import USAGE

PROJECTIONS = (AGENDA, COMMANDS, CONVERSATIONS, DISPLAY_MESSAGES, SUMMARIES, TOOL_CALLS, USAGE)
