"""Every field that does not fit is named by itself, and by one fault."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pydantic_core import from_json

from api.problems import problem
from domain.errors import InvalidInput
from domain.tools import as_tool

if TYPE_CHECKING:
    from tests.api.conftest import Api


def test_h5_each_argument_that_does_not_fit_is_named_by_itself() -> None:
    def send_email(to: str, body: str) -> str:
        """Send an email."""
        return f"{to} {body}"

    with pytest.raises(InvalidInput) as refused:
        as_tool(send_email).validate_args({"to": 5})

    answer = problem(refused.value)
    assert isinstance(answer.body, bytes)
    told = from_json(answer.body)
    assert told["errors"] == [
        {"field": "args.to", "message": "Input should be a valid string"},
        {"field": "args.body", "message": "Field required"},
    ]
    assert told["detail"] == "args.to: Input should be a valid string; args.body: Field required"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (5, "Input should be a valid string or a valid array"),
        ("", "String should have at least 1 character"),
        ([], "List should have at least 1 item after validation, not 0"),
    ],
)
async def test_a_value_that_may_be_of_two_types_has_one_fault(api: Api, content: Any, message: str) -> None:
    answer = await api("POST", "/v1/conversations", json={"message": {"content": content}})

    assert (answer.status, answer.json["errors"]) == (422, [{"field": "message.content", "message": message}])
