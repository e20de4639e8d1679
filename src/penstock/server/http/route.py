"""Routes of the admin API. One declaration validates requests and generates the OpenAPI document.

A handler takes a `Call`, whose three type parameters are the models of path, query and body, and returns the response. Its
annotations are the declaration, so that it cannot contradict the code.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Generic, TypeVar, get_args, get_type_hints

import msgspec
from aiohttp import web

from penstock.gateway.http_bodies import IncomingBodies
from penstock.gateway.http_guard import WrongContentTypeError
from penstock.server.http.caller import Caller
from penstock.server.http.errors import MalformedRequestError

JSON_TYPE = "application/json"
INT64_MAX = (1 << 63) - 1
BODY_BYTES_MAX = 8 << 20
BODIES = web.AppKey("bodies", IncomingBodies)
OPEN_HANDLERS = web.AppKey("open_handlers", set[Callable[..., Any]])
"""Those that serve everyone, before anyone signs in: they have no data of the node."""
SHUTDOWN = web.AppKey("shutdown", asyncio.Event)
"""Set when the node begins to stop; a handler whose answer has no end stops then."""

Count = Annotated[int, msgspec.Meta(ge=0, le=INT64_MAX)]
Limit = Annotated[int, msgspec.Meta(ge=1, le=500)]


class RequestModel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of request models. Unknown fields are refused, so that a typo is not ignored."""


class Nothing(RequestModel, frozen=True):
    """No names, no query, or no body."""


class ResponseModel(msgspec.Struct, frozen=True, kw_only=True):
    """Base of response models. All fields are always present; an unknown value is null."""


Names = TypeVar("Names", bound=RequestModel)
Query = TypeVar("Query", bound=RequestModel)
Body = TypeVar("Body", bound=RequestModel)
Item = TypeVar("Item")


class Done(ResponseModel, frozen=True):
    """The request was executed."""

    done: bool = True


class Paging(RequestModel, frozen=True, kw_only=True):
    """The requested part of a list."""

    search: Annotated[str, msgspec.Meta(max_length=500, description="only what has this in its name, whatever the case")] = ""
    offset: Annotated[Count, msgspec.Meta(description="how many to leave out")] = 0
    limit: Annotated[Limit, msgspec.Meta(description="how many to answer with at most")] = 50

    def page(self, items: list[Item]) -> list[Item]:
        """Returns the requested part of a list."""
        return items[self.offset : self.offset + self.limit]


class Page(msgspec.Struct, Generic[Item], frozen=True):
    """A page of a list, and the length of the whole list."""

    items: list[Item]
    total: int


@dataclass(frozen=True, slots=True)
class Call(Generic[Names, Query, Body]):
    """One valid request."""

    request: web.Request
    caller: Caller
    names: Names
    query: Query
    body: Body


Handler = Callable[[Call[Any, Any, Any]], Awaitable[Any]]


@dataclass(frozen=True)
class Route:
    """One method of one path. `errors` are the statuses it can return besides those of every route; `media_type` is that of a
    response that the handler builds itself."""

    method: str
    path: str
    handler: Handler
    summary: str
    errors: tuple[int, ...] = ()
    media_type: str = JSON_TYPE
    model: type[ResponseModel] | None = None  # of a JSON response that the handler builds itself

    @cached_property
    def _hints(self) -> dict[str, Any]:
        return get_type_hints(getattr(self.handler, "__func__", self.handler), include_extras=True)

    @cached_property
    def request_kinds(self) -> tuple[type[RequestModel], type[RequestModel], type[RequestModel]]:
        """The models of names, query and body."""
        call = next(hint for name, hint in self._hints.items() if name != "return")
        names, query, body = get_args(call)
        return names, query, body

    @property
    def answer(self) -> Any:
        """The model of the response."""
        return self.model or self._hints["return"]

    @property
    def name(self) -> str:
        """The operation id in the OpenAPI document."""
        return str(getattr(self.handler, "__qualname__", "")).replace(".", "_").lstrip("_")

    async def serve(self, request: web.Request, caller: Caller) -> web.StreamResponse:
        """Validates a request, calls the handler, and encodes its result. Raises MalformedRequestError for an invalid one."""
        names_kind, query_kind, body_kind = self.request_kinds
        names = _read_strings(dict(request.match_info), names_kind, "the path")
        query = _read_strings(_query_of(request), query_kind, "the query")
        body: RequestModel = Nothing() if body_kind is Nothing else await _read_body(request, body_kind)
        answer = await self.handler(Call(request, caller, names, query, body))
        if isinstance(answer, web.StreamResponse):
            return answer
        return web.Response(body=msgspec.json.encode(answer), content_type=JSON_TYPE)


class Resource(ABC):
    """One part of the API."""

    @abstractmethod
    def routes(self) -> list[Route]:
        """The routes of this resource."""

    async def close(self) -> None:  # noqa: B027 - most have no background work
        """Stops background work; called when the listener stops."""


def _query_of(request: web.Request) -> dict[str, str]:
    given: dict[str, str] = {}
    for name, value in request.query.items():
        if name in given:
            raise MalformedRequestError(f"{name!r} is given twice in the query; give it once")
        given[name] = value
    return given


def _read_strings(given: Mapping[str, str], kind: type[RequestModel], place: str) -> RequestModel:
    for name, value in given.items():
        try:
            (name + value).encode()
        except UnicodeEncodeError:
            raise MalformedRequestError(f"{place} is not UTF-8") from None
        if "\0" in value:
            raise MalformedRequestError(f"{name} in {place} has a zero byte in it")
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        raise MalformedRequestError(f"{place} is invalid: {_plainly(error)}") from error


async def _read_body(request: web.Request, kind: type[RequestModel]) -> RequestModel:
    if request.content_type != JSON_TYPE:
        raise WrongContentTypeError(f"the body must be JSON, with the header Content-Type: {JSON_TYPE}")
    async with request.app[BODIES].read(request, BODY_BYTES_MAX) as raw:
        return _parse_body(raw, kind)


def _parse_body(raw: bytes, kind: type[RequestModel]) -> RequestModel:
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.ValidationError as error:
        raise MalformedRequestError(f"the body is invalid: {_plainly(error)}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedRequestError(f"the body is not JSON: {error}") from error
    except RecursionError as error:
        raise MalformedRequestError("the body is nested too deeply") from error


def _plainly(error: msgspec.ValidationError) -> str:
    return str(error).replace("`", "'").replace("$.", "field ")
