"""Generates the OpenAPI 3.1 document of the admin API from the declarations that validate requests."""

from __future__ import annotations

import http
import re
from collections.abc import Iterable
from typing import Any, Final

import msgspec
from aiohttp import web

from penstock import __version__
from penstock.server.http.errors import ErrorAnswer
from penstock.server.http.route import JSON_TYPE, Nothing, RequestModel, Route

# Errors that every route can return.
ALWAYS: Final = (400, 401, 403, 503)
WITH_BODY: Final = (413, 415)
_REF: Final = "#/components/schemas/{name}"


def openapi(routes: Iterable[Route], prefix: str, *, is_secured: bool) -> dict[str, Any]:
    """The document of some routes, whose paths all begin with `prefix`."""
    declared = list(routes)
    kinds: list[Any] = [ErrorAnswer]
    for route in declared:
        kinds += (kind for kind in route.request_kinds if kind is not Nothing)
        if _has_schema(route):
            kinds.append(route.answer)
    unique = list({repr(kind): kind for kind in kinds}.values())
    schemas, components = msgspec.json.schema_components(unique, ref_template=_REF)
    schema_of = {repr(kind): schema for kind, schema in zip(unique, schemas, strict=True)}
    paths: dict[str, dict[str, Any]] = {}
    for route in declared:
        plain = re.sub(r"{(\w+):[^}]*}", r"{\1}", route.path)
        paths.setdefault(prefix + plain, {})[route.method.lower()] = _operation(route, schema_of, components)
    security: dict[str, Any] = {"security": [{"basic": []}]} if is_secured else {}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Penstock admin API",
            "version": __version__,
            "description": "Times are in milliseconds since 1970, sizes in bytes. Errors are an ErrorAnswer.",
        },
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": {"basic": {"type": "http", "scheme": "basic"}}},
        **security,
    }


def _operation(route: Route, schema_of: dict[str, Any], components: dict[str, Any]) -> dict[str, Any]:
    names, query, body = route.request_kinds
    operation: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.summary,
        "tags": [route.path.split("/")[1]],
        "parameters": [*_parameters(names, "path", components), *_parameters(query, "query", components)],
        "responses": _responses(route, schema_of),
    }
    if body is not Nothing:
        operation["requestBody"] = {"required": True, "content": {JSON_TYPE: {"schema": schema_of[repr(body)]}}}
    return operation


def _parameters(kind: type[RequestModel], place: str, components: dict[str, Any]) -> list[dict[str, Any]]:
    if kind is Nothing:
        return []
    described = components[kind.__name__]
    required = set(described.get("required", ()))
    parameters: list[dict[str, Any]] = []
    for name, schema in described["properties"].items():
        own_schema = dict(schema)
        description = own_schema.pop("description", None)
        parameter = {"name": name, "in": place, "required": place == "path" or name in required, "schema": own_schema}
        parameters.append(parameter if description is None else {**parameter, "description": description})
    return parameters


def _responses(route: Route, schema_of: dict[str, Any]) -> dict[str, Any]:
    schema = schema_of[repr(route.answer)] if _has_schema(route) else {"type": "string"}
    responses: dict[str, Any] = {"200": {"description": "done", "content": {route.media_type: {"schema": schema}}}}
    statuses = {*ALWAYS, *route.errors, *(WITH_BODY if route.request_kinds[2] is not Nothing else ())}
    for status in sorted(statuses):
        content = {JSON_TYPE: {"schema": schema_of[repr(ErrorAnswer)]}}
        responses[str(status)] = {"description": http.HTTPStatus(status).phrase, "content": content}
    return responses


def _has_schema(route: Route) -> bool:
    answer = route.answer
    return not (isinstance(answer, type) and issubclass(answer, web.StreamResponse))
