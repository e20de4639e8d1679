"""/streams: subjects, their last sequences and their durable consumers."""

from __future__ import annotations

import re
from typing import Annotated, Final

import msgspec
from aiohttp import web

from penstock.broker import Operation
from penstock.broker.streams import StreamEngine, Streams
from penstock.core.errors import PenstockError
from penstock.server.http.consumer_directory import ConsumerDirectory, last_sequence_of
from penstock.server.http.errors import NotFoundError
from penstock.server.http.node_context import NodeContext
from penstock.server.http.route import Call, Count, Nothing, Paging, RequestModel, Resource, ResponseModel, Route
from penstock.server.http.throttle import throttle_reader

PAYLOAD: Final = "/streams/{subject}/payloads/{offset}"


class SubjectNames(RequestModel, frozen=True):
    """The subject in the path."""

    subject: Annotated[str, msgspec.Meta(min_length=1, max_length=249)]


class PayloadNames(RequestModel, frozen=True):
    """The message in the path, by its offset in the topic of its subject."""

    subject: Annotated[str, msgspec.Meta(min_length=1, max_length=249)]
    offset: Count


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
    """A subject with its durable consumers. Payloads outside the log are not in `bytes`; their size is null if it is unknown."""

    subject: str
    last_sequence: int | None
    messages: int | None
    bytes: int | None
    payload_bytes: int | None
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
            Route("GET", PAYLOAD, self.download, "the payload of a message", (404,), media_type="application/octet-stream"),
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
            raise NotFoundError(f"there is no subject {name!r}; GET /api/v1/streams lists them")
        places = await self._directory.stream_places_in(name)
        shown = await self._subject(engine, name)
        return SubjectDetail(
            subject=name,
            last_sequence=shown.last_sequence,
            messages=shown.messages,
            bytes=shown.bytes,
            payload_bytes=engine.payload_bytes(name) if isinstance(engine, Streams) else None,
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

    async def download(self, call: Call[PayloadNames, Nothing, Nothing]) -> web.StreamResponse:
        """GET /streams/{subject}/payloads/{offset}: always a download, never rendered by a browser."""
        name, offset = call.names.subject, call.names.offset
        call.caller.check_topic(Operation.READ, name)
        engine = self._context.streams
        sequence = engine.sequence_at(name, offset) if isinstance(engine, Streams) else None
        if engine is None or sequence is None:
            raise NotFoundError(
                f"subject {name!r} has no message at offset {offset}; GET /api/v1/streams/{name} says what it has"
            )
        message, size = await engine.payload_of(sequence)
        file = re.sub(r"[^a-zA-Z0-9._-]", "_", f"{name}-{sequence}")
        headers = {
            "Content-Disposition": f'attachment; filename="{file}.bin"',
            "Content-Length": str(size),
            "Content-Security-Policy": "sandbox; default-src 'none'",
            "Content-Type": "application/octet-stream",
        }
        response = web.StreamResponse(headers=headers)
        await response.prepare(call.request)
        async for part in engine.read_payload(message):
            await throttle_reader(self._context.broker, call.caller, len(part))
            await response.write(part)
        return response

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
