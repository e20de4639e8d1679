"""Answers of the registry in the form that Confluent's clients expect, errors included."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, Final

import msgspec
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from penstock.broker import TooManyAttemptsError
from penstock.broker.schema_registry import RegistryError, SchemaValue
from penstock.core.errors import InvalidRequestError, PenstockError
from penstock.gateway.basic_sign_in import NotSignedInError
from penstock.gateway.http_bodies import BodyTooLargeError, SlowBodyError
from penstock.gateway.http_guard import ForeignRequestError, WrongContentTypeError

log = logging.getLogger(__name__)

CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"
REALM: Final = 'Basic realm="Penstock", charset="UTF-8"'
UNAVAILABLE: Final = 50001  # "error in the backend data store": clients retry it

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_STATUSES: Final[dict[type[PenstockError], int]] = {
    NotSignedInError: 401,
    TooManyAttemptsError: 429,
    ForeignRequestError: 403,
    SlowBodyError: 408,
    BodyTooLargeError: 413,
    WrongContentTypeError: 415,
    InvalidRequestError: 422,
}


def answer(content: Any) -> web.Response:
    """A JSON answer."""
    return web.Response(body=msgspec.json.encode(content), content_type=CONTENT_TYPE)


def error_answer(number: int, message: str) -> web.Response:
    """An error: its number begins with the HTTP status."""
    status = int(str(number)[:3])
    body = msgspec.json.encode({"error_code": number, "message": message.encode(errors="replace").decode()})
    response = web.Response(body=body, status=status, content_type=CONTENT_TYPE)
    if status == HTTPStatus.UNAUTHORIZED:
        response.headers["WWW-Authenticate"] = REALM
    return response


@web.middleware
async def answer_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn errors into answers."""
    try:
        return await handler(request)
    except RegistryError as error:
        return error_answer(error.number, str(error))
    except PenstockError as error:
        status = next((_STATUSES[kind] for kind in type(error).__mro__ if kind in _STATUSES), None)
        if status is None:
            log.warning("%s %s: %s", request.method, request.path, error)
        return error_answer(UNAVAILABLE if status is None else status, str(error))
    except web.HTTPException as error:
        if error.status < 400:
            raise
        return error_answer(error.status, f"HTTP {error.status} {error.reason}")
    except HttpProcessingError as error:
        return error_answer(400, f"the request is not HTTP as it must be: {error.message}")
    except ConnectionError:
        raise  # the client has disconnected
    except Exception:
        log.exception("%s %s failed", request.method, request.path)
        return error_answer(500, "the request failed within the node; its log says where")


def schema_fields(value: SchemaValue, text: str | None = None) -> dict[str, Any]:
    """A schema without subject and version: the response to a lookup by id."""
    fields: dict[str, Any] = {"schema": value.schema if text is None else text}
    if value.schema_type != "AVRO":
        fields["schemaType"] = value.schema_type
    if value.references:
        fields["references"] = value.references
    if value.metadata is not None:
        fields["metadata"] = value.metadata
    if value.rule_set is not None:
        fields["ruleSet"] = value.rule_set
    return fields


def version_fields(value: SchemaValue, text: str | None = None) -> dict[str, Any]:
    """A version of a subject."""
    fields = {"subject": value.subject, "version": value.version, "id": value.id, **schema_fields(value, text)}
    if value.deleted:
        fields["deleted"] = True
    return fields
