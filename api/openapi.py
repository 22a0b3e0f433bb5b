"""The OpenAPI 3.1 document, made of the route table and its models."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, TypeAdapter

from api import idempotency
from api.problems import MEDIA_TYPE

if TYPE_CHECKING:
    from api.routing import Route, RouteTable

VERSION = "1"
_REFS = "#/components/schemas/{model}"
_PATH_PARAMETER = re.compile(r"{(\w+)}")


class Fault(BaseModel):
    """One thing that is wrong with a request."""

    field: str
    message: str


class Problem(BaseModel):
    """An error (RFC 9457). `errors` names the fields of a request that does not fit."""

    type: str
    title: str
    status: int
    detail: str | None = None
    errors: list[Fault] | None = None
    request_id: str | None = None


@cache
def openapi_document(table: RouteTable) -> dict[str, Any]:
    """Return the document, as JSON's types."""
    schemas, definitions = _schemas(table)
    paths: dict[str, dict[str, Any]] = {}
    for route in table.routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schemas)
    problem = {"description": "A problem.", "content": {MEDIA_TYPE: {"schema": schemas[Problem, "serialization"]}}}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Rejoinder",
            "version": VERSION,
            "description": "Conversations between people and AI agents whose log is the truth.",
        },
        "paths": paths,
        "components": {
            "schemas": definitions,
            "responses": {"Problem": problem},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"key": []}],
    }


def _schemas(table: RouteTable) -> tuple[dict[tuple[Any, str], Any], dict[str, Any]]:
    """Return the schema of every body and answer, and the definitions that these refer to."""
    wanted: dict[tuple[Any, str], Any] = {(Problem, "serialization"): None}
    for route in table.routes:
        if route.body is not None:
            wanted[route.body, "validation"] = None
        for answer in route.answers.values():
            if answer is not None:
                wanted[answer, "serialization"] = None
    schemas, shared = TypeAdapter.json_schemas(
        [(kind, mode, TypeAdapter(kind)) for kind, mode in wanted],  # type: ignore[misc]  # modes are literals
        ref_template=_REFS,
    )
    return dict(schemas), shared.get("$defs", {})


def _operation(route: Route, schemas: dict[tuple[Any, str], Any]) -> dict[str, Any]:
    summary, description = route.explanation
    operation: dict[str, Any] = {
        "operationId": route.name,
        "tags": [route.group],
        "summary": summary,
        "parameters": _parameters(route),
        "responses": {str(status): _response(route, answer, schemas) for status, answer in route.answers.items()},
    }
    operation["responses"]["default"] = {"$ref": "#/components/responses/Problem"}
    if description:
        operation["description"] = description
    if route.access == "open":
        operation["security"] = []
    if route.body is not None:
        needs = any(field.is_required() for field in route.body.model_fields.values())
        content = {"application/json": {"schema": schemas[route.body, "validation"]}}
        operation["requestBody"] = {"required": needs, "content": content}
    return operation


def _response(route: Route, answer: Any, schemas: dict[tuple[Any, str], Any]) -> dict[str, Any]:
    schema = {} if answer is None else schemas[answer, "serialization"]
    return {"description": "The answer.", "content": {route.media_type: {"schema": schema}}}


def _parameters(route: Route) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {"type": "string"} | ({"format": "uuid"} if name == "conversation_id" else {}),
        }
        for name in _PATH_PARAMETER.findall(route.path)
    ]
    if route.query is not None:
        schema = route.query.model_json_schema()
        required = schema.get("required", ())
        found += [
            {"name": name, "in": "query", "required": name in required, "schema": _in_query(field)}
            for name, field in schema.get("properties", {}).items()
        ]
    if route.body is not None:
        key = {"type": "string", "minLength": 1, "maxLength": idempotency.LONGEST_KEY}
        found.append({"name": idempotency.HEADER, "in": "header", "required": False, "schema": key})
    return found


def _in_query(field: dict[str, Any]) -> dict[str, Any]:
    """Leave out null, which no query can say, and the title, which is the name again."""
    kept = {key: value for key, value in field.items() if key not in ("title", "anyOf")}
    for choice in field.get("anyOf", ()):
        if choice != {"type": "null"}:
            kept = {**choice, **{key: value for key, value in kept.items() if value is not None}}
    return kept
