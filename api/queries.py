"""Query strings: named parameters that fit their model, each at most once."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from api.errors import FieldError, InvalidRequest
from api.field_errors import field_errors
from domain.text import clean

if TYPE_CHECKING:
    from aiohttp import web

Parameters = TypeVar("Parameters", bound=BaseModel)


class NoParameters(BaseModel):
    """No query parameters; the base of all queries."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)


def read_query(request: web.Request, model: type[Parameters]) -> Parameters:
    """Validate the query string. Raises `InvalidRequest` naming each parameter that is unknown, repeated or wrong."""
    given = dict(request.query)
    faults = [
        FieldError(name[:100], message)
        for name, value in given.items()
        for wrong, message in (
            (len(request.query.getall(name)) > 1, "may be given once"),
            (clean(value) != value or clean(name) != name, "has characters that no text has"),
        )
        if wrong
    ]
    if faults:
        raise InvalidRequest(faults)
    try:
        return model.model_validate(given)
    except ValidationError as error:
        raise InvalidRequest(field_errors(error, given, "query")) from None
