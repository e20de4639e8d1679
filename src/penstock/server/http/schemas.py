"""/schemas: subjects of the schema registry, their versions, and the topics that use them; the registry's API changes them."""

from __future__ import annotations

from typing import Annotated

import msgspec

from penstock.broker import Operation, UnknownTopicError
from penstock.broker.schema_registry import RegistryState, SchemaRegistry, config_of, mode_of, resource_topic
from penstock.core.errors import UnavailableError
from penstock.server.http.caller import Caller
from penstock.server.http.errors import NotFoundError
from penstock.server.http.node_context import NodeContext
from penstock.server.http.route import Call, Nothing, Paging, RequestModel, Resource, ResponseModel, Route


class SchemaNames(RequestModel, frozen=True):
    """The subject in the path."""

    subject: Annotated[str, msgspec.Meta(min_length=1, max_length=1000)]


class RegistrySubjectView(ResponseModel, frozen=True):
    """A subject: its latest version, the compatibility level that applies, and the topic that it is named for, if any."""

    subject: str
    versions: int
    latest: int
    schema_id: int
    type: str
    level: str
    topic: str | None


class RegistrySubjectsView(ResponseModel, frozen=True):
    """A page of subjects."""

    items: list[RegistrySubjectView]
    total: int


class SchemaVersionView(ResponseModel, frozen=True):
    """A version of a subject; the texts are those of the registry's own API."""

    version: int
    schema_id: int


class SchemaUseView(ResponseModel, frozen=True):
    """A topic whose keys or values have the schemas of a subject, and what the broker checks of them."""

    topic: str
    part: str
    validation: str


class RegistrySubjectDetail(ResponseModel, frozen=True):
    """A subject with its versions, newest first. `level_is_own` says that it has a level of its own; `guarded_by` is the topic
    whose access rules it has."""

    subject: str
    type: str
    level: str
    level_is_own: bool
    mode: str
    guarded_by: str
    versions: list[SchemaVersionView]
    uses: list[SchemaUseView]


class SchemaResource(Resource):
    """Subjects of the registry."""

    def __init__(self, context: NodeContext) -> None:
        self._context = context

    def routes(self) -> list[Route]:
        """The routes of this resource."""
        return [
            Route("GET", "/schemas", self.list_subjects, "subjects of the schema registry"),
            Route("GET", "/schemas/{subject}", self.show, "one subject, its versions and the topics that use it", (404,)),
        ]

    async def list_subjects(self, call: Call[Nothing, Paging, Nothing]) -> RegistrySubjectsView:
        """GET /schemas."""
        registry = self._registry()
        state = await registry.state()
        part = call.query.search.lower()
        names = sorted(
            name for name in state.subjects() if part in name.lower() and state.is_live(name) and _may_see(call.caller, name)
        )
        items = [await self._subject(registry, state, name) for name in call.query.page(names)]
        return RegistrySubjectsView(items=items, total=len(names))

    async def show(self, call: Call[SchemaNames, Nothing, Nothing]) -> RegistrySubjectDetail:
        """GET /schemas/{subject}."""
        name = call.names.subject
        call.caller.check_topic(Operation.DESCRIBE, resource_topic(name))
        registry = self._registry()
        state = await registry.state()
        live = state.live(name)
        if not live:
            raise NotFoundError(f"there is no subject {name!r}; GET /api/v1/schemas lists them")
        latest = await registry.version(name, max(live))
        return RegistrySubjectDetail(
            subject=name,
            type=latest.schema_type,
            level=str(config_of(state, name, inherited=True).get("compatibilityLevel", "BACKWARD")),
            level_is_own="compatibilityLevel" in state.configs.get(name, {}),
            mode=mode_of(state, name, inherited=True),
            guarded_by=resource_topic(name),
            versions=[SchemaVersionView(version=number, schema_id=live[number].id) for number in sorted(live, reverse=True)],
            uses=self._uses(name),
        )

    def _registry(self) -> SchemaRegistry:
        if self._context.schemas is None:
            raise UnavailableError("this node has no schema registry; ask another one")
        return self._context.schemas

    async def _subject(self, registry: SchemaRegistry, state: RegistryState, name: str) -> RegistrySubjectView:
        live = state.live(name)
        latest = max(live)
        return RegistrySubjectView(
            subject=name,
            versions=len(live),
            latest=latest,
            schema_id=live[latest].id,
            type=(await registry.version(name, latest)).schema_type,
            level=str(config_of(state, name, inherited=True).get("compatibilityLevel", "BACKWARD")),
            topic=next((use.topic for use in self._uses(name)), None),
        )

    def _uses(self, subject: str) -> list[SchemaUseView]:
        """The topics that a subject is for by its name: all of its own, and those whose records are named by topic and record."""
        own = resource_topic(subject)
        part = subject.removeprefix(f"{own}-")
        is_whole = part in ("key", "value")
        uses: list[SchemaUseView] = []
        for name in [own] if is_whole else _prefixes(subject):
            try:
                rule = self._context.broker.catalog.topic(name).config.schema_rule
            except UnknownTopicError:
                continue
            validation = "none" if rule is None else "full" if rule.decodes else "id"
            uses.append(SchemaUseView(topic=name, part=part if is_whole else "record", validation=validation))
        return uses


def _prefixes(subject: str) -> list[str]:
    """What comes before each dash of a subject: the topics it may be for with TopicRecordNameStrategy."""
    return [subject[:at] for at, character in enumerate(subject) if character == "-" and at]


def _may_see(caller: Caller, subject: str) -> bool:
    return caller.may_topic(Operation.DESCRIBE, resource_topic(subject))
