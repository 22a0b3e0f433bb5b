"""The command by which a person or client answers a pending tool call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from domain.decisions import Decision, Inquiry
from domain.errors import InvalidInput
from domain.proposals import client_inquiry
from domain.scope import Scope

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from commands.context import CommandContext, Receipt
    from commands.conversations import Conversations
    from domain.conversation import Conversation
    from domain.conversation_state import OpenCall
    from domain.tools import Toolset


class ResolveToolCall(BaseModel):
    """A decision: `args` go with ``edit``, `answer` with ``answer``."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    outcome: Literal["approve", "edit", "reject", "answer"]
    args: dict[str, Any] | None = None
    answer: Any = None
    reason: str | None = Field(default=None, max_length=10_000)


async def resolve_tool_call(
    conversations: Conversations,
    toolset: Toolset,
    approval_timeout_s: float,
    conversation_id: UUID,
    tool_call_id: str,
    body: ResolveToolCall,
    context: CommandContext,
) -> Receipt:
    """Record the decision; it waits for no tool and no model.

    Raises `StaleResolution` if the call is not pending or waits for another kind of decision, `InvalidInput` if
    arguments or answer don't fit the tool.
    """
    _check_fields(body)

    def decide(conversation: Conversation, now: datetime) -> dict[str, Any]:
        call = conversation.question(tool_call_id, now)
        settings = conversation.turn.settings if conversation.turn else conversation.settings
        timeout = settings.get("approval_timeout_s", approval_timeout_s)
        decision = _checked(body, call, toolset, timeout)
        conversation.resolve(decision, now=now, actor=context.scope.actor)
        return {}

    return await conversations.execute(conversation_id, context, decide, allows=Scope.may_resolve)


def _check_fields(body: ResolveToolCall) -> None:
    for field, outcome in (("args", "edit"), ("answer", "answer")):
        given = field in body.model_fields_set
        if given and body.outcome != outcome:
            raise InvalidInput(field, f"goes with the outcome {outcome!r} only")
        if not given and body.outcome == outcome:
            raise InvalidInput(field, f"is needed with the outcome {outcome!r}")
    if body.outcome == "edit" and body.args is None:
        raise InvalidInput("args", "must be an object")


def _checked(body: ResolveToolCall, call: OpenCall, toolset: Toolset, timeout_s: float) -> Decision:
    """Check arguments and answer against the tool, and say what a client is asked once its run is approved.

    What does not fit the kind of the question is left to the aggregate to refuse.
    """
    tool = toolset.get(call.name)
    args, answer = body.args, body.answer
    inquiry: Inquiry | None = None
    for_approval = call.question is not None and call.question.kind == "approval"
    if tool is not None and body.outcome == "answer" and not for_approval:
        answer = tool.validate_answer(answer)
    if tool is not None and body.outcome == "edit" and for_approval:
        args = tool.validate_args(args)
    if tool is not None and call.executor == "client":
        inquiry = client_inquiry(tool, call.args if args is None else args, approval_timeout_s=timeout_s)
    return Decision(call.tool_call_id, body.outcome, args=args, answer=answer, reason=body.reason, inquiry=inquiry)
