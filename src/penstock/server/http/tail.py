"""/topics/{name}/tail: new messages as server-sent events.

A few times a second an event carries the messages written since the last one; if a topic is too fast, the latest of them and the
number left out. The only state of a reader is its offset in each partition. It is also the id of every event, so that a client
that reconnects with it as Last-Event-ID continues there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Final

import msgspec
from aiohttp import web

from penstock.broker import Operation, Topic, UnknownTopicError
from penstock.core.errors import PenstockError, UnavailableError
from penstock.server.http.message_decoding import DecodingQuery, MessageDecoding
from penstock.server.http.message_filter import compile_filter
from penstock.server.http.message_scan import Budget, Cursor, Filter, ReadablePartition, scan
from penstock.server.http.messages import ANSWER_BYTES_MAX, Isolation, PartitionNumber, Start, first_offset, parse_start, scans_at
from penstock.server.http.node_context import NodeContext
from penstock.server.http.payload_view import MessageView
from penstock.server.http.readable_partitions import readable_partitions
from penstock.server.http.route import SHUTDOWN, Call, Limit, Nothing, Resource, ResponseModel, Route
from penstock.server.http.throttle import throttle_reader
from penstock.server.http.topics import TopicNames, topic_for

EVERY_S: Final = 0.25
FEW_PARTITIONS: Final = 32
SELDOM_S: Final = 1.0  # of a topic with more
HEARTBEAT_S: Final = 10.0
WRITE_S_MAX: Final = 30.0  # a client that accepts no data for this long is disconnected
READERS_MAX: Final = 100
PARTITIONS_MAX: Final = 256
SEARCHED_MAX: Final = 20_000  # offsets of a partition that are searched at a time; of more, the latest
SEARCHED_BYTES_MAX: Final = 4 << 20
SEARCHED_S_MAX: Final = 0.5


class TailQuery(DecodingQuery, frozen=True, kw_only=True):
    """The messages to follow."""

    partition: PartitionNumber | None = None
    start: Start = "newest"
    limit: Limit = 50
    search: Annotated[str, msgspec.Meta(max_length=500)] = ""
    filter: Annotated[str, msgspec.Meta(max_length=1000)] = ""
    isolation: Isolation = "committed"


class TailEvent(ResponseModel, frozen=True):
    """New messages, oldest first, and about how many were dropped since the last event."""

    items: list[MessageView]
    dropped: int


class TailEnd(ResponseModel, frozen=True):
    """The reason why the stream ends."""

    message: str


class TailResource(Resource):
    """Clients that follow topics."""

    def __init__(self, context: NodeContext) -> None:
        self._context = context
        self._decoding = MessageDecoding(context.schemas)
        self._readers = 0

    def routes(self) -> list[Route]:
        """The routes of this resource."""
        summary = "messages as they come: server-sent events, with the data of TailEvent, resumed by Last-Event-ID"
        return [Route("GET", "/topics/{name}/tail", self.follow, summary, (404, 422), media_type="text/event-stream")]

    async def follow(self, call: Call[TopicNames, TailQuery, Nothing]) -> web.StreamResponse:
        """GET /topics/{name}/tail."""
        topic = topic_for(self._context, call.caller, Operation.READ, call.names.name)
        places = await self._places(topic, call)
        if self._readers >= READERS_MAX:
            raise UnavailableError(f"{READERS_MAX} readers follow topics already; close one, or try again later")
        self._readers += 1
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "X-Accel-Buffering": "no"})
        try:
            await response.prepare(call.request)
            await self._send_all(call, topic, places, response)
        except (ConnectionError, TimeoutError):
            pass  # the client has disconnected
        finally:
            self._readers -= 1
        return response

    async def _places(self, topic: Topic, call: Call[TopicNames, TailQuery, Nothing]) -> dict[int, int]:
        """The start offsets by partition."""
        query = call.query
        numbers = [query.partition] if query.partition is not None else list(range(min(topic.partitions, PARTITIONS_MAX)))
        partitions = await readable_partitions(self._context, topic, numbers)
        seen = call.request.headers.get("Last-Event-ID", "")
        if seen:
            known = Cursor.unpack(seen).at
            return {partition.number: known.get(str(partition.number), partition.end_offset) for partition in partitions}
        start = parse_start(query.start)
        return {partition.number: await first_offset(partition, start) for partition in partitions}

    async def _send_all(
        self, call: Call[TopicNames, TailQuery, Nothing], topic: Topic, places: dict[int, int], response: web.StreamResponse
    ) -> None:
        ending, clock = call.request.app[SHUTDOWN], self._context.clock
        heard_s = clock.monotonic()
        await _write(response, b"retry: 2000\n: following\n\n")
        while not ending.is_set() and _is_there(call.request):
            try:
                call.caller.check_topic(Operation.READ, topic.name)  # the access rules may have changed
                arrived, size = await self._arrived(topic, call, places)
            except UnavailableError:
                arrived, size = TailEvent(items=[], dropped=0), 0  # its tablet is starting; retry later
            except PenstockError as error:
                await _write(response, _event("end", TailEnd(message=str(error))))
                return
            if arrived.items or arrived.dropped:
                cursor = Cursor(False, {str(number): offset for number, offset in places.items()}).pack()
                await _write(response, _event("messages", arrived, cursor))
                heard_s = clock.monotonic()
            elif clock.monotonic() - heard_s >= HEARTBEAT_S:
                await _write(response, b": still here\n\n")
                heard_s = clock.monotonic()
            await throttle_reader(self._context.broker, call.caller, size)
            await _wait(ending, EVERY_S if len(places) <= FEW_PARTITIONS else SELDOM_S)

    async def _arrived(
        self, topic: Topic, call: Call[TopicNames, TailQuery, Nothing], places: dict[int, int]
    ) -> tuple[TailEvent, int]:
        """The messages since `places`, which are advanced."""
        query = call.query
        if self._context.broker.catalog.topic(topic.name).id != topic.id:
            raise UnknownTopicError(f"topic {topic.name!r} was deleted")
        accepts = compile_filter(query.filter) if query.filter.strip() else None
        wanted = Filter(query.search.encode().lower(), None, query.isolation == "committed", accepts)
        partitions = await readable_partitions(self._context, topic, list(places))
        behind = [partition for partition in partitions if _end(partition, wanted) > places[partition.number]]
        if not behind:
            return TailEvent(items=[], dropped=0), 0
        dropped = _skip_ahead(behind, places, SEARCHED_MAX if query.search or accepts else query.limit, wanted)
        scans = scans_at({partition: places[partition.number] for partition in behind}, wanted, backwards=False)
        budget = Budget(self._context.clock, SEARCHED_BYTES_MAX, SEARCHED_S_MAX)
        result = await scan(scans, query.limit, ANSWER_BYTES_MAX, budget, backwards=False)
        for partition_scan in scans:
            places[partition_scan.partition.number] = partition_scan.at
        items = await self._decoding.views(result.records, query, call.caller, topic.name)
        return TailEvent(items=items, dropped=dropped), result.size


def _skip_ahead(behind: Sequence[ReadablePartition], places: dict[int, int], limit: int, wanted: Filter) -> int:
    """Skip the oldest messages if there are too many. Returns how many."""
    dropped = 0
    share = max(limit // len(behind), 1)
    for partition in behind:
        begin = max(places[partition.number], partition.start_offset)
        first = max(_end(partition, wanted) - share, begin)
        dropped += first - begin
        places[partition.number] = first
    return dropped


def _end(partition: ReadablePartition, wanted: Filter) -> int:
    return partition.stable_offset if wanted.committed else partition.end_offset


def _is_there(request: web.Request) -> bool:
    return request.transport is not None and not request.transport.is_closing()


def _event(name: str, data: ResponseModel, event_id: str = "") -> bytes:
    head = f"id: {event_id}\n" if event_id else ""
    # JSON values are sent as they were written, perhaps over several lines.
    lines = b"\ndata: ".join(msgspec.json.encode(data).splitlines())
    return f"{head}event: {name}\ndata: ".encode() + lines + b"\n\n"


async def _write(response: web.StreamResponse, data: bytes) -> None:
    async with asyncio.timeout(WRITE_S_MAX):
        await response.write(data)


async def _wait(ending: asyncio.Event, pause_s: float) -> None:
    try:
        async with asyncio.timeout(pause_s):
            await ending.wait()
    except TimeoutError:
        return
