"""One run of a server tool: as whom, with what it recorded before, and the decision that records how it ended."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from commands.agent.model_step import open_turn
from commands.agent.tool_run import missing_tool, run_tool
from domain.decisions import Outcome
from domain.errors import Superseded
from domain.events import ToolStep, TurnStarted
from domain.parts import text_part
from domain.tool_context import ToolContext

if TYPE_CHECKING:
    from commands.agent.model_context import ModelContext
    from commands.agent.surroundings import Decide, Recorder, Surroundings
    from commands.session import Session

logger = logging.getLogger(__name__)


async def tool_dispatch(
    tool_call_id: str, session: Session, surroundings: Surroundings, context: ModelContext, record: Recorder
) -> Decide:
    """Run the call; its id is the same however often that happens. Returns the decision that records its result."""
    turn = open_turn(session.conversation)
    number, attempt, settings = turn.number, turn.attempt, turn.settings
    call = session.conversation.calls.get(tool_call_id)
    if call is None:
        raise Superseded(f"{tool_call_id} has its result")
    tool = surroundings.toolset.existing(settings.get("tools")).get(call.name)
    if tool is None:
        return _recording(number, attempt, missing_tool(tool_call_id, call.name))

    async def keep(step: str, n: int, value: Any) -> None:
        await record(lambda c, now: c.record_step(number, attempt, tool_call_id, step, n, value, now=now))

    actor = session.conversation.acting_for(call)
    answers = next((event.answers for event in reversed(session.newest) if isinstance(event, TurnStarted)), [])
    metadata = session.conversation.metadata | await context.message_metadata(answers)
    recorded = _recorded(session, tool_call_id)
    try:
        scope = await surroundings.scopes.resolve(session.conversation.tenant, actor)
    except Exception as error:  # somebody else's code: its failure ends this call, not the ones beside it
        logger.exception("nobody can say what the actor may do", extra={"action": "scope_failed"})
        said = f"{call.name} did not run: the server could not look up what its user may do ({type(error).__name__})."
        return _recording(number, attempt, Outcome(tool_call_id, "error", [text_part(said)]))
    outcome = await run_tool(
        tool,
        call.args,
        ToolContext(
            tool_call_id,
            session.conversation_id,
            scope,
            metadata,
            record=keep,
            recorded=recorded,
            actor=actor,
        ),
        timeout_s=settings.get("tool_timeout_s"),
    )
    return _recording(number, attempt, outcome)


def _recording(turn: int, attempt: int, outcome: Outcome) -> Decide:
    return lambda conversation, now: conversation.record_result(turn, attempt, outcome, now=now)


def _recorded(session: Session, tool_call_id: str) -> dict[str, list[Any]]:
    values: dict[str, list[Any]] = {}
    for event in session.newest:
        if isinstance(event, ToolStep) and event.tool_call_id == tool_call_id:
            values.setdefault(event.step, []).append(event.value)
    return values
