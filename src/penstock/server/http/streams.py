"""/streams: subjects, their last sequences and their durable consumers."""

from __future__ import annotations

from typing import Annotated

import msgspec

from penstock.broker import Operation
from penstock.broker.streams import StreamEngine
from penstock.core.errors import PenstockError
from penstock.server.http.consumer_directory import ConsumerDirectory, last_sequence_of
from penstock.server.http.errors import NotFoundError
from penstock.server.http.node_context import NodeContext
from penstock.server.http.route import Call, Nothing, Paging, RequestModel, Resource, ResponseModel, Route


class SubjectNames(RequestModel, frozen=True):
    """The subject in the path."""

    subject: Annotated[str, msgspec.Meta(min_length=1, max_length=249)]


class SubjectView(ResponseModel, frozen=True):
    """A subject. Messages and bytes are those of its topic; they are null if its messages are in another store. The last sequence
    is null while its partition is unavailable."""

    subject: str
    last_sequence: int | None
    messages: int | None
    bytes: int | None
    consumers: int


class SubjectsView(ResponseModel, frozen=True):
    """A page of subjects; empty if streams are off."""

    is_on: bool
    items: list[SubjectView]
    total: int


class DurableConsumerView(ResponseModel, frozen=True):
    """A durable consumer of a subject, by name or by pattern: the last acknowledged sequence, and its lag in the subject."""

    name: str
    subject: str
    position: int
    lag_messages: int | None
    lag_bytes: int | None


class SubjectDetail(ResponseModel, frozen=True):
    """A subject with its durable consumers."""

    subject: str
    last_sequence: int | None
    messages: int | None
    bytes: int | None
    consumers: list[DurableConsumerView]


class StreamResource(Resource):
    """Subjects."""

    def __init__(self, context: NodeContext, directory: ConsumerDirectory) -> None:
        self._context = context
        self._directory = directory

    def routes(self) -> list[Route]:
        """The routes of this resource."""
        return [
            Route("GET", "/streams", self.list_subjects, "subjects of streams"),
            Route("GET", "/streams/{subject}", self.show, "one subject and its durable consumers", (404,)),
        ]

    async def list_subjects(self, call: Call[Nothing, Paging, Nothing]) -> SubjectsView:
        """GET /streams."""
        engine = self._context.streams
        if engine is None:
            return SubjectsView(is_on=False, items=[], total=0)
        part = call.query.search.lower()
        names = [
            name
            for name in await engine.get_subjects()
            if part in name.lower() and call.caller.may_topic(Operation.DESCRIBE, name)
        ]
        items = [await self._subject(engine, name) for name in call.query.page(names)]
        return SubjectsView(is_on=True, items=items, total=len(names))

    async def show(self, call: Call[SubjectNames, Nothing, Nothing]) -> SubjectDetail:
        """GET /streams/{subject}."""
        name = call.names.subject
        call.caller.check_topic(Operation.DESCRIBE, name)
        engine = self._context.streams
        if engine is None:
            raise NotFoundError("streams are off; start the node with --stream-port or --stream-http-port")
        if name not in await engine.get_subjects():
            raise NotFoundError(f"there is no subject {name!r}; GET /api/v1/streams lists those there are")
        places = await self._directory.stream_places_in(name)
        shown = await self._subject(engine, name)
        return SubjectDetail(
            subject=name,
            last_sequence=shown.last_sequence,
            messages=shown.messages,
            bytes=shown.bytes,
            consumers=[
                DurableConsumerView(
                    name=durable,
                    subject=place.subject,
                    position=place.sequence,
                    lag_messages=None if place.lag is None else place.lag.messages,
                    lag_bytes=None if place.lag is None else place.lag.size,
                )
                for durable, place in places
            ],
        )

    async def _subject(self, engine: StreamEngine, name: str) -> SubjectView:
        messages = size = None
        try:
            partition = self._context.broker.partition(self._context.broker.catalog.topic(name), 0)
            messages, size = partition.message_count, partition.size
        except PenstockError:
            pass  # its messages are in another store, or its tablet is starting
        consumers = await engine.get_consumers(name)
        last = await last_sequence_of(engine, name)
        return SubjectView(subject=name, last_sequence=last, messages=messages, bytes=size, consumers=len(consumers))
