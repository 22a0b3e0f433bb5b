"""Commands, queries and operations as routes: each gets its parsed input, so that a handler only calls and answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from aiohttp import web
from pydantic import BaseModel

from api.auth import scope_of
from api.bodies import read_body
from api.idempotency import command_context
from api.queries import NoParameters, read_query
from api.routing import Access, Route

if TYPE_CHECKING:
    from commands.context import CommandContext
    from domain.scope import Scope

Body = TypeVar("Body", bound=BaseModel)
Query = TypeVar("Query", bound=BaseModel)
CommandHandler = Callable[[web.Request, Body, "CommandContext"], Awaitable[web.Response]]
QueryHandler = Callable[[web.Request, Query, "Scope"], Awaitable[web.Response]]
OperationHandler = Callable[[web.Request, Query], Awaitable[web.Response]]


def command(
    method: str, path: str, body: type[Body], *, answers: Mapping[int, Any]
) -> Callable[[CommandHandler[Body]], Route]:
    """Make a route of a command's handler."""

    def register(handle: CommandHandler[Body]) -> Route:
        async def handler(request: web.Request) -> web.Response:
            read_query(request, NoParameters)
            given = await read_body(request, body)
            return await handle(request, given.model, command_context(request, given))

        return Route(method=method, path=path, handler=handler, described_by=handle, body=body, answers=answers)

    return register


def query(
    path: str, parameters: type[Query], *, answer: Any, access: Access = "caller"
) -> Callable[[QueryHandler[Query]], Route]:
    """Make a route of a query's handler."""

    def register(handle: QueryHandler[Query]) -> Route:
        async def handler(request: web.Request) -> web.Response:
            return await handle(request, read_query(request, parameters), scope_of(request))

        return Route(
            method="GET",
            path=path,
            handler=handler,
            described_by=handle,
            query=parameters,
            answers={200: answer},
            access=access,
        )

    return register


def operation(
    method: str, path: str, parameters: type[Query], *, answers: Mapping[int, Any]
) -> Callable[[OperationHandler[Query]], Route]:
    """Make a route of what only administrators do."""

    def register(handle: OperationHandler[Query]) -> Route:
        async def handler(request: web.Request) -> web.Response:
            asked = read_query(request, parameters)
            await read_body(request, NoParameters)
            return await handle(request, asked)

        return Route(
            method=method,
            path=path,
            handler=handler,
            described_by=handle,
            query=parameters,
            answers=answers,
            access="admin",
        )

    return register
