"""The calls of Confluent's registry API, version 1."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import msgspec
from aiohttp import web

from penstock.broker import Operation
from penstock.broker.schema_registry import (
    DEFAULT_CONTEXT,
    LATEST,
    NewSchema,
    RegistryError,
    SchemaRegistry,
    SchemaValue,
    context_of,
    in_context,
    invalid_version,
    schema_not_found,
)
from penstock.gateway.http_bodies import IncomingBodies
from penstock.gateway.http_guard import check_content_type
from penstock.gateway.schema_registry.answers import CONTENT_TYPE, answer, schema_fields, version_fields
from penstock.gateway.schema_registry.callers import RegistryCaller
from penstock.schemas import KINDS

BODY_BYTES_MAX: Final = 4 << 20
INT_MAX: Final = (1 << 31) - 1
Body = TypeVar("Body")
CallerOf = Callable[[web.Request], Awaitable[RegistryCaller]]


class RegistryHandlers:
    """Answers requests about schemas, subjects and their compatibility."""

    def __init__(self, registry: SchemaRegistry, cluster_name: str, bodies: IncomingBodies, caller_of: CallerOf) -> None:
        self.registry = registry
        self._cluster_name = cluster_name
        self._bodies = bodies
        self.caller_of = caller_of

    def routes(self) -> list[tuple[str, str, Callable[[web.Request], Awaitable[web.Response]]]]:
        """Method, path and handler of each call."""
        versions, version = "/subjects/{subject}/versions", "/subjects/{subject}/versions/{version}"
        return [
            ("GET", "/", self.root),
            ("GET", "/contexts", self.contexts),
            ("GET", "/v1/metadata/id", self.cluster_id),
            ("GET", "/v1/metadata/version", self.server_version),
            ("GET", "/schemas", self.list_schemas),
            ("GET", "/schemas/types", self.types),
            ("GET", "/schemas/ids/{id}", self.schema),
            ("GET", "/schemas/ids/{id}/schema", self.schema_text),
            ("GET", "/schemas/ids/{id}/subjects", self.id_subjects),
            ("GET", "/schemas/ids/{id}/versions", self.id_versions),
            ("GET", "/subjects", self.subjects),
            ("POST", "/subjects/{subject}", self.look_up),
            ("DELETE", "/subjects/{subject}", self.delete_subject),
            ("GET", "/subjects/{subject}/metadata", self.with_metadata),
            ("GET", versions, self.versions),
            ("POST", versions, self.register),
            ("GET", version, self.version),
            ("DELETE", version, self.delete_version),
            ("GET", version + "/schema", self.version_text),
            ("GET", version + "/referencedby", self.referenced_by),
            ("POST", "/compatibility" + versions, self.check),
            ("POST", "/compatibility" + version, self.check),
        ]

    async def root(self, request: web.Request) -> web.Response:
        """GET /: the registry is there."""
        await self.caller_of(request)
        return answer({})

    async def contexts(self, request: web.Request) -> web.Response:
        """GET /contexts."""
        await self.caller_of(request)
        state = await self.registry.state()
        return answer(sorted({DEFAULT_CONTEXT, *(context_of(subject) for subject in state.subjects())}))

    async def cluster_id(self, request: web.Request) -> web.Response:
        """GET /v1/metadata/id."""
        await self.caller_of(request)
        name = self._cluster_name
        return answer({"scope": {"path": [], "clusters": {"kafka-cluster": name, "schema-registry-cluster": name}}, "id": ""})

    async def server_version(self, request: web.Request) -> web.Response:
        """GET /v1/metadata/version: that of the API that is spoken here."""
        await self.caller_of(request)
        return answer({"version": "7.6.0-penstock", "commitId": ""})

    async def types(self, request: web.Request) -> web.Response:
        """GET /schemas/types."""
        await self.caller_of(request)
        return answer(sorted(KINDS))

    async def list_schemas(self, request: web.Request) -> web.Response:
        """GET /schemas: versions of subjects with a prefix."""
        caller, state = await self.caller_of(request), await self.registry.state()
        prefix, deleted, latest = self.subject_prefix(request), flag(request, "deleted"), flag(request, "latestOnly")
        found: list[tuple[str, int]] = []
        for subject in sorted(state.subjects()):
            if self._is_listed(subject, prefix) and caller.may(Operation.DESCRIBE, subject):
                versions = state.versions(subject) if deleted else state.live(subject)
                numbers = sorted(versions)
                found += ((subject, number) for number in (numbers[-1:] if latest else numbers))
        page = paged(request, found)
        return answer([version_fields(await self.registry.version(*place, deleted=True)) for place in page])

    async def schema(self, request: web.Request) -> web.Response:
        """GET /schemas/ids/{id}."""
        value = await self._with_id(request)
        fields = schema_fields(value, await self._formatted(request, value))
        if flag(request, "fetchMaxId"):
            state = await self.registry.state()
            fields["maxId"] = state.context(context_of(value.subject)).max_id
        return answer(fields)

    async def schema_text(self, request: web.Request) -> web.Response:
        """GET /schemas/ids/{id}/schema: the text alone."""
        value = await self._with_id(request)
        return web.Response(text=value.schema, content_type=CONTENT_TYPE)

    async def id_subjects(self, request: web.Request) -> web.Response:
        """GET /schemas/ids/{id}/subjects."""
        return answer(sorted({subject for subject, _ in await self._places(request)}))

    async def id_versions(self, request: web.Request) -> web.Response:
        """GET /schemas/ids/{id}/versions."""
        return answer([{"subject": subject, "version": number} for subject, number in sorted(await self._places(request))])

    async def subjects(self, request: web.Request) -> web.Response:
        """GET /subjects."""
        caller, state = await self.caller_of(request), await self.registry.state()
        prefix, deleted, deleted_only = self.subject_prefix(request), flag(request, "deleted"), flag(request, "deletedOnly")
        names: list[str] = []
        for subject in state.subjects():
            is_live = state.is_live(subject)
            is_wanted = not is_live if deleted_only else deleted or is_live
            if is_wanted and self._is_listed(subject, prefix) and caller.may(Operation.DESCRIBE, subject):
                names.append(subject)
        return answer(paged(request, sorted(names)))

    async def look_up(self, request: web.Request) -> web.Response:
        """POST /subjects/{subject}: the version that a schema is registered as."""
        subject = await self.subject(request, Operation.DESCRIBE)
        new = await self.body(request, NewSchema)
        value = await self.registry.look_up(subject, new, normalize=flag(request, "normalize"), deleted=flag(request, "deleted"))
        return answer(version_fields(value))

    async def register(self, request: web.Request) -> web.Response:
        """POST /subjects/{subject}/versions."""
        subject = await self.subject(request, Operation.WRITE)
        new = await self.body(request, NewSchema)
        value = await self.registry.register(subject, new, normalize=flag(request, "normalize"))
        return answer({"id": value.id})  # nothing else: clients keep the text that they have sent

    async def versions(self, request: web.Request) -> web.Response:
        """GET /subjects/{subject}/versions."""
        subject = await self.subject(request, Operation.DESCRIBE)
        deleted, deleted_only = flag(request, "deleted"), flag(request, "deletedOnly")
        return answer(paged(request, await self.registry.versions(subject, deleted=deleted, deleted_only=deleted_only)))

    async def version(self, request: web.Request) -> web.Response:
        """GET /subjects/{subject}/versions/{version}."""
        value = await self._version(request)
        return answer(version_fields(value, await self._formatted(request, value)))

    async def version_text(self, request: web.Request) -> web.Response:
        """GET /subjects/{subject}/versions/{version}/schema: the text alone."""
        return web.Response(text=(await self._version(request)).schema, content_type=CONTENT_TYPE)

    async def with_metadata(self, request: web.Request) -> web.Response:
        """GET /subjects/{subject}/metadata: the latest version whose metadata has the wanted properties."""
        subject = await self.subject(request, Operation.DESCRIBE)
        wanted = dict(zip(request.query.getall("key", []), request.query.getall("value", []), strict=False))
        deleted = flag(request, "deleted")
        for number in reversed(await self.registry.versions(subject, deleted=deleted)):
            value = await self.registry.version(subject, number, deleted=deleted)
            properties = (value.metadata or {}).get("properties") or {}
            if all(properties.get(name) == text for name, text in wanted.items()):
                return answer(version_fields(value, await self._formatted(request, value)))
        raise schema_not_found()

    async def referenced_by(self, request: web.Request) -> web.Response:
        """GET /subjects/{subject}/versions/{version}/referencedby."""
        subject = await self.subject(request, Operation.DESCRIBE)
        return answer(await self.registry.referenced_by(subject, version_number(request)))

    async def delete_subject(self, request: web.Request) -> web.Response:
        """DELETE /subjects/{subject}."""
        subject = await self.subject(request, Operation.DELETE)
        return answer(await self.registry.delete_subject(subject, permanent=flag(request, "permanent")))

    async def delete_version(self, request: web.Request) -> web.Response:
        """DELETE /subjects/{subject}/versions/{version}."""
        subject = await self.subject(request, Operation.DELETE)
        number = version_number(request)
        return answer(await self.registry.delete_version(subject, number, permanent=flag(request, "permanent")))

    async def check(self, request: web.Request) -> web.Response:
        """POST /compatibility/subjects/{subject}/versions, with or without a version."""
        subject = await self.subject(request, Operation.DESCRIBE)
        number = version_number(request) if "version" in request.match_info else None
        new = await self.body(request, NewSchema)
        level, conflict = await self.registry.check(subject, new, number, normalize=flag(request, "normalize"))
        fields: dict[str, Any] = {"is_compatible": conflict is None}
        if flag(request, "verbose"):
            fields["messages"] = [] if conflict is None else conflict.messages(level)
        return answer(fields)

    async def subject(self, request: web.Request, operation: Operation) -> str:
        """The subject that a request names, if its caller may do this with it."""
        subject = in_context(request.match_info.get("context", DEFAULT_CONTEXT), request.match_info["subject"])
        (await self.caller_of(request)).check(operation, subject)
        return subject

    async def body(self, request: web.Request, kind: type[Body]) -> Body:
        """The body of a request."""
        check_content_type(request, CONTENT_TYPE)
        async with self._bodies.read(request, BODY_BYTES_MAX) as raw:
            try:
                return msgspec.json.decode(raw, type=kind)
            except (msgspec.DecodeError, msgspec.ValidationError) as error:
                raise RegistryError(422, f"the body is not what it must be: {error}") from error

    def subject_prefix(self, request: web.Request) -> str:
        """What listed subjects begin with."""
        prefix = request.query.get("subjectPrefix", "")
        context = request.match_info.get("context", DEFAULT_CONTEXT)
        return prefix if prefix.startswith(":") else in_context(context, prefix)

    def _is_listed(self, subject: str, prefix: str) -> bool:
        """Whether a subject is in a list. `:*:` stands for all contexts; without it, a list is of one."""
        if prefix.startswith(":*:"):
            return True
        prefix = prefix.removeprefix(":.:")
        return subject.startswith(prefix) and (prefix != "" or context_of(subject) == DEFAULT_CONTEXT)

    async def _formatted(self, request: web.Request, value: SchemaValue) -> str | None:
        """The text of a schema in the form that is asked for; None if that is the usual one."""
        wanted = request.query.get("format", "")
        if not wanted or value.schema_type != "PROTOBUF":
            return None
        if wanted != "serialized":
            raise RegistryError(422, f"the format of a Protobuf schema is 'serialized' or none, not {wanted!r}")
        return await self.registry.serialized(value)

    async def _version(self, request: web.Request) -> SchemaValue:
        subject = await self.subject(request, Operation.DESCRIBE)
        return await self.registry.version(subject, version_number(request), deleted=flag(request, "deleted"))

    async def _with_id(self, request: web.Request) -> SchemaValue:
        """The schema with an id, if the caller may see a subject that has it."""
        caller, context = await self.caller_of(request), self._context(request)
        schema_id = _id(request)
        value = await self.registry.with_id(schema_id, context)
        if not caller.may(Operation.DESCRIBE, value.subject):
            state = await self.registry.state()
            places = state.versions_of_id(context, schema_id, deleted=True)
            if not any(caller.may(Operation.DESCRIBE, subject) for subject, _, _ in places):
                raise schema_not_found(f"{schema_id} ")
        return value

    async def _places(self, request: web.Request) -> list[tuple[str, int]]:
        """Subjects and versions with an id."""
        caller, context = await self.caller_of(request), self._context(request)
        await self._with_id(request)
        state = await self.registry.state()
        versions = state.versions_of_id(context, _id(request), deleted=flag(request, "deleted"))
        return [(subject, number) for subject, number, _ in versions if caller.may(Operation.DESCRIBE, subject)]

    def _context(self, request: web.Request) -> str:
        """The context that an id is of."""
        context: str = request.match_info.get("context", DEFAULT_CONTEXT)
        return context_of(in_context(context, request.query.get("subject", "")))


def flag(request: web.Request, name: str) -> bool:
    """A parameter that is true or false."""
    text = request.query.get(name, "false").lower()
    if text not in ("true", "false", ""):
        raise RegistryError(422, f"{name} is true or false, not {text!r}")
    return text == "true"


def paged(request: web.Request, items: list[Any]) -> list[Any]:
    """The requested part of a list."""
    try:
        offset, limit = int(request.query.get("offset", "0")), int(request.query.get("limit", "-1"))
    except ValueError:
        raise RegistryError(422, "offset and limit are whole numbers") from None
    return items[max(offset, 0) :] if limit < 0 else items[max(offset, 0) : max(offset, 0) + limit]


def version_number(request: web.Request) -> int:
    """The version that a path names."""
    text = request.match_info["version"]
    if text in ("latest", "-1"):
        return LATEST
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:11]) <= INT_MAX:
        raise invalid_version(text)
    return int(text)


def _id(request: web.Request) -> int:
    text = request.match_info["id"]
    if not text.isascii() or not text.isdigit() or len(text) > 10:
        raise RegistryError(404, f"{text!r} is no id of a schema")
    return int(text)
