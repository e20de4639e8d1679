"""/topics/{name}/messages: reads messages from either end, an offset or a time."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Final, Literal

import msgspec
from aiohttp import web

from penstock.broker import Operation, Topic
from penstock.server.http.caller import Caller
from penstock.server.http.errors import MalformedRequestError, NotFoundError
from penstock.server.http.message_decoding import DecodingQuery, MessageDecoding
from penstock.server.http.message_filter import compile_filter
from penstock.server.http.message_scan import (
    Budget,
    Cursor,
    Filter,
    PartitionScan,
    ReadablePartition,
    chunk_bytes,
    offset_at_time,
    scan,
)
from penstock.server.http.node_context import NodeContext
from penstock.server.http.payload_view import MessageView
from penstock.server.http.readable_partitions import partitions_of, readable_partitions
from penstock.server.http.route import Call, Count, Limit, Nothing, RequestModel, Resource, ResponseModel, Route
from penstock.server.http.stored_records import Record
from penstock.server.http.throttle import throttle_reader
from penstock.server.http.topics import TopicName, TopicNames, topic_for

ANSWER_BYTES_MAX: Final = 4 << 20  # of messages in one answer, about
PARTITIONS_MAX: Final = 256  # that are merged; of a topic with more, those written to last, or the first
_START: Final = re.compile(r"(newest|oldest)|(offset|before|time):([0-9]{1,19})")

PartitionNumber = Annotated[int, msgspec.Meta(ge=0, le=99_999)]
Start = Annotated[
    str,
    msgspec.Meta(
        pattern="^(newest|oldest|offset:[0-9]{1,18}|time:[0-9]{1,18})$",
        description="where to begin: newest (and go back from there), oldest, offset:N or time:MS",
    ),
]
ListStart = Annotated[
    str,
    msgspec.Meta(
        pattern="^(newest|oldest|offset:[0-9]{1,18}|before:[0-9]{1,18}|time:[0-9]{1,18})$",
        description="where to begin: oldest, offset:N or time:MS; newest or before:OFFSET, and go back from there",
    ),
]
Isolation = Literal["committed", "uncommitted"]


class MessagesQuery(DecodingQuery, frozen=True, kw_only=True):
    """The requested messages."""

    partition: PartitionNumber | None = None
    start: ListStart = "newest"
    limit: Limit = 50
    search: Annotated[str, msgspec.Meta(max_length=500, description="a text in key, value or headers; case is ignored")] = ""
    filter: Annotated[
        str,
        msgspec.Meta(
            max_length=1000,
            description="conditions on fields: value.customer = anna and value.total > 100 and header.source ~ web and key = 7",
        ),
    ] = ""
    until: Annotated[Count | None, msgspec.Meta(description="no messages after this time, in ms")] = None
    cursor: Annotated[str, msgspec.Meta(pattern="^[A-Za-z0-9_=-]*$", description="'next' of the answer before, to go on")] = ""
    full: Annotated[bool, msgspec.Meta(description="do not cut long keys and values, up to 2 MiB each")] = False
    isolation: Isolation = "committed"


class MessagesView(ResponseModel, frozen=True):
    """Messages ordered by time, from `start` on. `next` is the cursor of the next page; null at the end."""

    items: list[MessageView]
    next: str | None
    scanned_bytes: int


class MessageNames(RequestModel, frozen=True):
    """The message in the path."""

    name: TopicName
    partition: PartitionNumber
    offset: Count


class MessageResource(Resource):
    """Messages of topics."""

    def __init__(self, context: NodeContext) -> None:
        self._context = context
        self._decoding = MessageDecoding(context.schemas)

    def routes(self) -> list[Route]:
        """The routes of this resource."""
        value = "/topics/{name}/messages/{partition}/{offset}/value"
        return [
            Route("GET", "/topics/{name}/messages", self.list_messages, "messages of a topic", (404, 422)),
            Route("GET", "/topics/{name}/messages/{partition}/{offset}", self.show, "one message, not cut", (404,)),
            Route("GET", value, self.show_value, "the bytes of its value", (404,), media_type="application/octet-stream"),
        ]

    async def list_messages(self, call: Call[TopicNames, MessagesQuery, Nothing]) -> MessagesView:
        """GET /topics/{name}/messages: as much as fits the budget of a request."""
        query = call.query
        topic = topic_for(self._context, call.caller, Operation.READ, call.names.name)
        backwards, scans = await self._scans(topic, query)
        budget = Budget(self._context.clock)
        result = await scan(scans, query.limit, ANSWER_BYTES_MAX, budget, backwards=backwards)
        await throttle_reader(self._context.broker, call.caller, result.size)
        items = await self._decoding.views(result.records, query, call.caller, topic.name, full=query.full)
        return MessagesView(items=items, next=None if result.next is None else result.next.pack(), scanned_bytes=result.size)

    async def show(self, call: Call[MessageNames, DecodingQuery, Nothing]) -> MessageView:
        """GET /topics/{name}/messages/{partition}/{offset}."""
        record = await self._record(call.names, call.caller)
        (view,) = await self._decoding.views([record], call.query, call.caller, call.names.name, full=True)
        return view

    async def show_value(self, call: Call[MessageNames, Nothing, Nothing]) -> web.Response:
        """GET …/value: always a download, never rendered by a browser."""
        names = call.names
        record = await self._record(names, call.caller)
        file = re.sub(r"[^a-zA-Z0-9._-]", "_", f"{names.name}-{names.partition}-{names.offset}")
        headers = {
            "Content-Disposition": f'attachment; filename="{file}.bin"',
            "Content-Security-Policy": "sandbox; default-src 'none'",
            "Penstock-Null": "1" if record.value is None else "0",
        }
        return web.Response(body=record.value or b"", content_type="application/octet-stream", headers=headers)

    async def _record(self, names: MessageNames, caller: Caller) -> Record:
        topic = topic_for(self._context, caller, Operation.READ, names.name)
        (partition,) = await readable_partitions(self._context, topic, [names.partition])
        if partition.start_offset <= names.offset < partition.end_offset:
            scan = PartitionScan(partition, names.offset, Filter(committed=False), backwards=False)
            await scan.fill(Budget(self._context.clock))
            if scan.next_time is not None and (record := scan.take()).offset == names.offset:
                return record
        raise NotFoundError(
            f"partition {names.partition} of topic {names.name!r} has no message at offset {names.offset}; it has those from "
            f"{partition.start_offset} up to {partition.end_offset}, without what compaction has taken"
        )

    async def _scans(self, topic: Topic, query: MessagesQuery) -> tuple[bool, list[PartitionScan]]:
        """The scans of a query, and whether they run backwards."""
        needle = query.search.encode().lower()
        committed = query.isolation == "committed"
        accepts = compile_filter(query.filter) if query.filter.strip() else None
        if query.cursor:
            cursor = Cursor.unpack(query.cursor)
            partitions = await readable_partitions(self._context, topic, [int(number) for number in cursor.at])
            at = dict(zip(partitions, cursor.at.values(), strict=True))
            wanted = Filter(needle, None, committed, accepts)
            ends = await self._ends(partitions, query.until)
            return cursor.backwards, scans_at(at, wanted, backwards=cursor.backwards, ends=ends)
        start = parse_start(query.start)
        backwards = start.kind in ("newest", "before")
        wanted = Filter(needle, start.value if start.kind == "time" else None, committed, accepts)
        partitions = await self._partitions(topic, query.partition, backwards=backwards)
        ends = await self._ends(partitions, query.until)
        starts = {partition: await first_offset(partition, start) for partition in partitions}
        if backwards:
            starts = {partition: min(at, ends.get(partition, at)) for partition, at in starts.items()}
        return backwards, scans_at(starts, wanted, backwards=backwards, ends=ends)

    async def _ends(self, partitions: list[ReadablePartition], until_ms: int | None) -> dict[ReadablePartition, int]:
        """The offsets of the first messages after a time."""
        if until_ms is None:
            return {}
        return {partition: await offset_at_time(partition, until_ms + 1, self._context.clock) for partition in partitions}

    async def _partitions(self, topic: Topic, number: int | None, *, backwards: bool) -> list[ReadablePartition]:
        if number is not None:
            return await readable_partitions(self._context, topic, [number])
        candidates = [each for each in await partitions_of(self._context, topic) if each.end_offset > each.start_offset]
        if backwards and len(candidates) > PARTITIONS_MAX:
            candidates.sort(key=lambda each: each.max_timestamp, reverse=True)
        return candidates[:PARTITIONS_MAX]


class ParsedStart(msgspec.Struct, frozen=True):
    """Where to start: newest, oldest, an offset, before an offset, or a time."""

    kind: str
    value: int = 0


def parse_start(text: str) -> ParsedStart:
    """Parse `start`. Raises MalformedRequestError if it is invalid."""
    match = _START.fullmatch(text)
    if match is None:
        raise MalformedRequestError(f"start is {text!r}; it must be newest, oldest, offset:N, before:N or time:MS")
    return ParsedStart(match[1]) if match[1] else ParsedStart(match[2], int(match[3]))


async def first_offset(partition: ReadablePartition, start: ParsedStart) -> int:
    """The start offset in a partition."""
    if start.kind == "newest":
        return partition.end_offset
    if start.kind == "oldest":
        return partition.start_offset
    if start.kind in ("offset", "before"):
        return start.value
    batch = await partition.find_time(start.value)
    return partition.end_offset if batch is None else batch[0]


def scans_at(
    places: Mapping[ReadablePartition, int],
    wanted: Filter,
    *,
    backwards: bool,
    ends: Mapping[ReadablePartition, int] | None = None,
) -> list[PartitionScan]:
    """Scans from some offsets, clamped to existing ones, up to the end offsets if any."""
    size = chunk_bytes(len(places))
    return [
        PartitionScan(
            partition,
            min(max(at, partition.start_offset), partition.end_offset),
            wanted,
            backwards=backwards,
            chunk_bytes=size,
            until=(ends or {}).get(partition),
        )
        for partition, at in places.items()
    ]
