"""From what a model asks for to what is recorded."""

from __future__ import annotations

import re
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from commands.agent.model import ToolRequest
from domain.decisions import Inquiry
from domain.proposals import client_inquiry, mint_tool_call_id, propose
from domain.tools import Toolset, as_tool, tool

if TYPE_CHECKING:
    from domain.decisions import ProposedCall


def search(query: str, limit: int = 5) -> list[str]:
    """Search."""
    return [query] * limit


@tool(gate="always", approval_timeout_s=30)
def send_email(to: str, body: str) -> str:
    """Send an email."""
    return to


@tool(gate=lambda args: args["amount"] > 100)
def pay(amount: int) -> None:
    """Pay."""


@tool(executor="human")
def ask_user(question: str) -> str:  # type: ignore[empty-body]  # a person answers
    """Ask the person."""


@tool(executor="human", approval_timeout_s=0)
def choose(colours: list[str], count: int) -> list[str]:  # type: ignore[empty-body]  # a person answers
    """Let the person choose colours.

    More than one.
    """


@tool(executor="client")
def get_location() -> dict[str, float]:  # type: ignore[empty-body]  # the client answers
    """Find out where the person is."""


@tool(executor="client", gate="always")
def read_clipboard(kind: str) -> str:  # type: ignore[empty-body]  # the client answers
    """Read the clipboard."""


TOOLS = Toolset([search, send_email, pay, ask_user, choose, get_location, read_clipboard])


def _propose(name: str, arguments: str) -> ProposedCall:
    (call,) = propose([ToolRequest("call_0", name, arguments)], TOOLS, lambda: "c1", approval_timeout_s=600)
    assert call.tool_call_id == "c1"
    assert call.provider_id == "call_0"
    return call


def test_an_ungated_server_call_may_run() -> None:
    call = _propose("search", '{"query": "x"}')

    assert (call.name, call.args, call.executor, call.gated) == ("search", {"query": "x"}, "server", False)
    assert call.inquiry is None
    assert call.error is None


def test_h1_a_gated_call_asks_for_approval_until_its_tools_deadline() -> None:
    call = _propose("send_email", '{"to": "ada@example.org", "body": "hi"}')

    assert call.gated
    assert call.inquiry == Inquiry(
        "approval", 'The agent wants to run send_email(to="ada@example.org", body="hi")', None, 30
    )


def test_a_predicate_gates_by_the_arguments() -> None:
    small, large = _propose("pay", '{"amount": 100}'), _propose("pay", '{"amount": "101"}')

    assert (small.gated, small.inquiry) == (False, None)
    assert large.gated
    assert large.args == {"amount": 101}


def test_a_human_call_asks_the_question_that_the_model_worded() -> None:
    call = _propose("ask_user", '{"question": "Which one?"}')

    assert (call.executor, call.gated) == ("human", False)
    assert call.inquiry == Inquiry("elicitation", "Which one?", {"type": "string"}, 600)


def test_a_human_call_without_a_question_shows_its_arguments_and_may_have_no_deadline() -> None:
    call = _propose("choose", '{"colours": ["red", "bl\\u00fce"], "count": 1}')

    assert call.inquiry == Inquiry(
        "elicitation",
        'Let the person choose colours.\nchoose(colours=["red","blüe"], count=1)',
        {"items": {"type": "string"}, "type": "array"},
        0,
    )


def test_a_client_call_asks_the_client() -> None:
    call = _propose("get_location", "")
    schema = {"additionalProperties": {"type": "number"}, "type": "object"}

    assert (call.args, call.executor) == ({}, "client")
    assert call.inquiry == Inquiry("client", "The client is to run get_location()", schema, 600)


def test_h8_a_gated_client_call_asks_for_approval_first_and_then_the_client() -> None:
    call = _propose("read_clipboard", '{"kind": "text"}')
    second = client_inquiry(as_tool(read_clipboard), {"kind": "html"}, approval_timeout_s=None)

    assert call.inquiry is not None
    assert (call.gated, call.inquiry.kind) == (True, "approval")
    assert second == Inquiry("client", 'The client is to run read_clipboard(kind="html")', {"type": "string"}, None)


@pytest.mark.parametrize(
    ("name", "arguments", "executor", "error"),
    [
        ("serach", '{"query": "x"}', "server", "There is no tool named serach. The tools are: search, send_email, "),
        ("search", '{"query": ', "server", "is no valid JSON (at character 10). Call it again with a JSON object."),
        ("search", "[" * 100_000, "server", "is no valid JSON."),
        ("search", '"x"', "server", "args: must be a JSON object"),
        ("search", "null", "server", "args: must be a JSON object"),
        ("search", "{}", "server", "do not fit its schema: args.query: Field required. Correct them"),
        ("search", '{"query": 1, "limit": "x", "a": 2}', "server", "args.query: .*; args.limit: .*; args.a: "),
        ("send_email", "{}", "server", "args.to: Field required; args.body: Field required"),
        ("ask_user", '{"question": NaN}', "human", "no error"),
        ("get_location", '{"x": 1}', "client", "args.x: Extra inputs are not permitted"),
    ],
)
def test_t11_what_cannot_run_tells_the_model_why_and_asks_nobody(
    name: str, arguments: str, executor: str, error: str
) -> None:
    call = _propose(name, arguments)

    assert call.executor == executor
    if error == "no error":  # cleaned: NaN is a word
        assert call.args == {"question": "NaN"}
        return
    assert call.inquiry is None
    assert not call.gated
    assert call.error is not None
    assert error in call.error or re.search(error, call.error)


def test_without_tools_an_unknown_one_is_told_so() -> None:
    (call,) = propose([ToolRequest(None, "search", "{}")], Toolset(), approval_timeout_s=None)

    assert call.error == "There is no tool named search. The tools are: none."


def test_l11_whatever_a_model_makes_up_can_be_stored_and_sent_back() -> None:
    calls: list[Any] = [
        _propose("fun\x00ctions.sëarch\ud800" + "x" * 100, '{"a\\ud800": "\\u0000"}'),
        _propose("", '{"\ud800'),
        _propose("search", '{"query": "' + "x" * 1_000_000 + '"}'),
    ]

    assert re.fullmatch(r"fun_ctions_s_arch_x+", calls[0].name)
    assert len(calls[0].name) == 64
    assert calls[0].args == {"a\ufffd": "\ufffd"}
    assert (calls[1].name, calls[1].args) == ("_", '{"\ufffd')
    assert "larger than 384 KiB" in calls[2].error
    assert len(calls[2].args) <= 16 * 1024
    assert all("\ud800" not in (call.error or "") for call in calls)


def test_t12_equal_provider_ids_get_ids_of_their_own_in_order() -> None:
    numbers = count(1)
    requests = [ToolRequest("call_0", "search", f'{{"query": "{query}"}}') for query in "abc"]

    calls = propose(requests, TOOLS, lambda: f"id{next(numbers)}", approval_timeout_s=None)

    assert [(call.tool_call_id, call.args["query"]) for call in calls] == [("id1", "a"), ("id2", "b"), ("id3", "c")]


def test_t12_minted_ids_are_unique() -> None:
    minted = {mint_tool_call_id() for _ in range(1_000)}

    assert len(minted) == 1_000
    assert all(re.fullmatch(r"call_[0-9a-f]{32}", tool_call_id) for tool_call_id in minted)
