"""The API's own description: valid, complete, and there without any other server."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from openapi_spec_validator import OpenAPIV31SpecValidator, validate

from api.http import ROUTES

if TYPE_CHECKING:
    from tests.api.conftest import Api


async def test_the_document_is_valid_openapi_and_has_every_route(api: Api) -> None:
    document = (await api("GET", "/openapi.json", by=None)).json

    validate(document, cls=OpenAPIV31SpecValidator)
    described = {
        (method.upper(), path, operation["operationId"])
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }
    assert described == {(route.method, route.path, route.name) for route in ROUTES}


def test_every_route_is_explained_under_a_name_of_its_own() -> None:
    assert len({route.name for route in ROUTES}) == len(ROUTES)
    assert all(route.explanation[0].endswith(".") for route in ROUTES)


async def test_the_page_shows_every_route_and_loads_nothing(api: Api) -> None:
    answer = await api("GET", "/docs", by=None)
    page = answer.raw.decode()

    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert all(route.path in page for route in ROUTES)
    assert "<script" not in page
    assert not re.search(r"(?:src|href)=.?https?:", page)
