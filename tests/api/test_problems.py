"""What is ours to answer for: outages, surprises, and what the log says of a request."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import TYPE_CHECKING, NoReturn

import pytest
from aiohttp import web

from api.problems import KINDS, problem
from api.routing import Route
from domain import errors
from domain.errors import DomainError
from infra.log_setup import JsonLines
from tests.api.conftest import api_keys, out_of_reach, running

if TYPE_CHECKING:
    from tests.api.conftest import Api


async def boom(_request: web.Request) -> NoReturn:
    """Fail as nothing should."""
    raise ZeroDivisionError("s3cret")


async def half(request: web.Request) -> NoReturn:
    """Fail in the middle of an answer."""
    response = web.StreamResponse()
    await response.prepare(request)
    await response.write(b"half of it")
    raise ZeroDivisionError("s3cret")


def test_every_rule_has_a_name_outside() -> None:
    inside = {errors.Superseded}  # a worker's, no caller meets it
    rules = {rule for rule in vars(errors).values() if isinstance(rule, type) and issubclass(rule, DomainError)}

    assert rules - {DomainError} - inside <= KINDS.keys()


def test_a_field_at_fault_is_named() -> None:
    answer = problem(errors.InvalidInput("settings.tools.0", "is no tool"))

    assert answer.status == 422
    assert isinstance(answer.body, bytes)
    assert b'"errors":[{"field":"settings.tools.0","message":"is no tool"}]' in answer.body


async def test_a_surprise_is_a_problem_without_a_word_of_the_inside(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(database_url, keys=api_keys(), more=[Route(method="GET", path="/boom", handler=boom)]) as api:
        answer = await api("GET", "/boom", headers={"X-Request-Id": "r-1"})

    assert (answer.status, answer.json["type"]) == (500, "urn:rejoinder:internal")
    assert (answer.json["request_id"], answer.headers["X-Request-Id"]) == ("r-1", "r-1")
    assert b"s3cret" not in answer.raw
    assert b"Traceback" not in answer.raw
    assert any(record.exc_info for record in caplog.records)


async def test_an_answer_that_breaks_off_is_not_mistaken_for_a_whole_one(database_url: str) -> None:
    async with running(database_url, keys=api_keys(), more=[Route(method="GET", path="/half", handler=half)]) as api:
        with pytest.raises(Exception, match=r"payload is not completed|disconnected"):
            await api("GET", "/half")


async def test_a_log_out_of_reach_is_503_with_a_time_to_come_back(database_url: str, postgres_server: str) -> None:
    async with running(database_url, keys=api_keys(), patience=2.0) as api:
        path = await api.new_conversation()
        async with out_of_reach(api, postgres_server):
            answer = await api("POST", f"{path}/messages", json={"content": "hi"})

        assert (answer.status, answer.json["type"]) == (503, "urn:rejoinder:unavailable")
        assert answer.headers["Retry-After"] == "1"
        for _ in range(60):
            answer = await api("POST", f"{path}/messages", json={"content": "hi"})
            if answer.status != 503:
                break
            await asyncio.sleep(1)
        assert answer.status == 202


async def test_the_log_of_a_request_has_its_id_and_route_and_nothing_of_its_content(
    api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    path = await api.new_conversation(by="bob")
    caplog.clear()
    caplog.set_level(logging.INFO)
    caplog.handler.setFormatter(JsonLines())

    headers = {"X-Request-Id": "mine", "Idempotency-Key": "k"}
    answer = await api("POST", f"{path}/messages", json={"content": "s3cret"}, headers=headers, by="bob")

    assert answer.headers["X-Request-Id"] == "mine"
    lines = [json.loads(line) for line in caplog.text.splitlines()]
    (line,) = [line for line in lines if line.get("request_id") == "mine"]
    assert (line["route"], line["status"]) == ("/v1/conversations/{conversation_id}/messages", 202)
    assert line["conversation_id"] == path.rpartition("/")[2]
    assert "s3cret" not in caplog.text
    assert "bob" not in caplog.text  # unlike ada, no id in hexadecimal digits can have it by chance


async def test_an_id_that_could_forge_lines_of_the_log_is_replaced(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    answer = await api("GET", "/healthz", headers={"X-Request-Id": "a b; c"})

    assert answer.headers["X-Request-Id"] != "a b; c"
