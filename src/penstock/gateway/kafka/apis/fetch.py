"""Fetch: batches out of partitions, from memory or straight from files, waiting for enough of them."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from penstock.blob import FilePiece
from penstock.broker import Operation
from penstock.broker.quotas import FETCH_QUOTA
from penstock.core.errors import PenstockError
from penstock.core.record_compression import ZSTD
from penstock.gateway.kafka.apis.topic_lookup import epoch_error, find_topic, topic_code
from penstock.gateway.kafka.call import Call
from penstock.gateway.kafka.fetch_sessions import NO_SESSION, FetchSession, WantedPartition
from penstock.gateway.kafka.own_headers import Read, read_as_kafka
from penstock.gateway.kafka.security.authorization import may_topic
from penstock.kafka.protocol import Splice, errors
from penstock.kafka.protocol.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from penstock.queue import OffsetOutOfRangeError, Partition, UnsupportedCodecError

READ_COMMITTED = 1
ZSTD_FROM = 10
NO_RECORDS = b""


class _Fetched(NamedTuple):
    """What one partition gave."""

    wanted: WantedPartition
    data: PartitionData
    partition: Partition | None
    size: int


class _Round(NamedTuple):
    """What all partitions gave, and how much each held then."""

    fetched: list[_Fetched]
    size: int
    has_errors: bool
    held: int

    def held_now(self) -> int:
        """How much the partitions hold by now."""
        return sum(one.partition.size for one in self.fetched if one.partition is not None)


async def fetch(call: Call, request: FetchRequest) -> FetchResponse:
    """Read from every partition asked for; if that is too little, wait for more and read again."""
    node = call.node
    code, session, wanted = node.sessions.open(request, node.clock.monotonic())
    if code:
        call.is_refused = True
        return FetchResponse(error_code=code, session_id=NO_SESSION)
    quotas = node.broker.quotas
    limit = quotas.limit(FETCH_QUOTA, call.user, call.client_id) if quotas.limits_fetch else None
    if limit is not None and (wait_ms := limit.wait_ms()):
        return _throttled(call, request, session, wait_ms)
    deadline = node.clock.monotonic() + request.max_wait_ms / 1000
    bytes_max = max(min(request.max_bytes, node.options.fetch_bytes_max, node.memory.left), 1)
    if limit is not None:
        bytes_max = max(min(bytes_max, int(limit.size)), 1)
    found = await _read_all(call, request, wanted, bytes_max)
    while found.size < request.min_bytes and not found.has_errors and not call.peer.must_hurry():
        left_s = deadline - node.clock.monotonic()
        if left_s <= 0 or not wanted:
            break
        await _wait_for_more(call, found, left_s)
        grown = found.held_now() - found.held
        now = node.clock.monotonic()
        call.waited_s += now - (deadline - left_s)
        is_last = call.peer.must_hurry() or now >= deadline
        if grown and (is_last or found.size + grown >= request.min_bytes):
            found = await _read_all(call, request, wanted, bytes_max)
    is_incremental = session is not None and request.session_id == session.id
    response = _respond(found, session, incremental=is_incremental)
    call.has_files = any(_has_files(one.data) for one in found.fetched)
    call.size = found.size
    call.is_refused = found.has_errors
    if limit is not None:
        # What was drawn too much is waited for by the next request.
        limit.draw(found.size)
    return response


def _throttled(call: Call, request: FetchRequest, session: FetchSession | None, wait_ms: int) -> FetchResponse:
    """The answer to a client that is over its quota: nothing, and how long to wait."""
    call.peer.mute(wait_ms / 1000)
    if session is not None and request.session_id != session.id:
        # A session begins with a reply that names all its partitions, and this one names none.
        call.node.sessions.drop(session)
        session = None
    return FetchResponse(throttle_time_ms=wait_ms, session_id=NO_SESSION if session is None else session.id)


async def _read_all(call: Call, request: FetchRequest, wanted: list[WantedPartition], bytes_max: int) -> _Round:
    """Read every partition, all together no more than `bytes_max`; the first that has anything gives one batch in any case."""
    fetched: list[_Fetched] = []
    size = 0
    for one in wanted:
        result = await _read_one(call, request, one, bytes_max - size, at_least_one=size == 0)
        fetched.append(result)
        size += result.size
    has_errors = any(one.data.error_code for one in fetched) or any(one.data.diverging_epoch for one in fetched)
    found = _Round(fetched, size, has_errors, 0)
    return found._replace(held=found.held_now())


async def _read_one(
    call: Call, request: FetchRequest, wanted: WantedPartition, bytes_left: int, *, at_least_one: bool
) -> _Fetched:
    asked = wanted.asked
    data = PartitionData(partition_index=asked.partition, high_watermark=-1, records=NO_RECORDS, aborted_transactions=None)
    node = call.node
    try:
        if node.access is not None and not may_topic(call, Operation.READ, wanted.topic):
            data.error_code = errors.TOPIC_AUTHORIZATION_FAILED
            return _Fetched(wanted, data, None, 0)
        topic = find_topic(node, wanted.topic)
        partition = node.broker.partition(topic, asked.partition)
        if call.version < ZSTD_FROM and topic.config.codec == ZSTD:
            raise UnsupportedCodecError(f"what topic {topic.name!r} holds is in zstd, which needs Fetch version {ZSTD_FROM}")
        data.error_code = epoch_error(partition, asked.current_leader_epoch)
        if data.error_code:
            return _Fetched(wanted, data, None, 0)
        bytes_max = min(asked.partition_max_bytes, bytes_left)
        read = Read(bytes_max, files=call.peer.takes_files, at_least_one=at_least_one, shows_all=topic.config.shows_own_headers)
        size = await _read_partition(partition, request, asked, data, read)
    except PenstockError as error:
        data.error_code = topic_code(error)
        return _Fetched(wanted, data, None, 0)
    return _Fetched(wanted, data, partition, size)


async def _read_partition(
    partition: Partition,
    request: FetchRequest,
    asked: FetchPartition,
    data: PartitionData,
    read: Read,
) -> int:
    """Fill in what a partition has to give; the bytes of it."""
    data.high_watermark, data.log_start_offset = partition.end_offset, partition.start_offset
    data.last_stable_offset = partition.stable_offset
    offset = asked.fetch_offset
    if not partition.start_offset <= offset <= partition.end_offset:
        raise OffsetOutOfRangeError(f"offset {offset} is not within {partition.start_offset}..{partition.end_offset}")
    if asked.last_fetched_epoch >= 0:
        epoch, end_offset = partition.epoch_end(asked.last_fetched_epoch)
        if 0 <= epoch < asked.last_fetched_epoch or 0 <= end_offset < offset:
            data.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end_offset)
            return 0
    is_committed = request.isolation_level == READ_COMMITTED
    if is_committed:
        data.aborted_transactions = []
    until = partition.stable_offset if is_committed else partition.end_offset
    if offset >= until or (read.bytes_max <= 0 and not read.at_least_one):
        return 0
    found = await read_as_kafka(partition, offset, until, read)
    data.records = Splice(found.batches, found.size)
    if is_committed:
        aborted = partition.aborted_between(offset, found.next_offset)
        data.aborted_transactions = [
            AbortedTransaction(producer_id=one.producer_id, first_offset=one.first_offset) for one in aborted
        ]
    return found.size


async def _wait_for_more(call: Call, found: _Round, timeout_s: float) -> None:
    """Until something is written to one of the partitions, or the time is up, or the reply is wanted at once."""
    loop = asyncio.get_running_loop()
    waiter: asyncio.Future[None] = loop.create_future()
    partitions = [one.partition for one in found.fetched if one.partition is not None]
    for partition in partitions:
        partition.arrivals.watch(waiter)
    timer = loop.call_later(timeout_s, _wake, waiter)
    call.poll = waiter
    try:
        await waiter
    finally:
        call.poll = None
        timer.cancel()
        for partition in partitions:
            partition.arrivals.unwatch(waiter)


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def _respond(found: _Round, session: FetchSession | None, *, incremental: bool) -> FetchResponse:
    response = FetchResponse(session_id=NO_SESSION if session is None else session.id)
    topics: dict[str | bytes, FetchableTopicResponse] = {}
    for wanted, data, _, _ in found.fetched:
        if session is not None and not wanted.is_news(data) and incremental:
            continue
        topic = topics.get(wanted.topic)
        if topic is None:
            if isinstance(wanted.topic, str):
                topic = FetchableTopicResponse(topic=wanted.topic)
            else:
                topic = FetchableTopicResponse(topic_id=wanted.topic)
            topics[wanted.topic] = topic
            response.responses.append(topic)
        topic.partitions.append(data)
    if session is not None:
        session.rotate([one.wanted for one in found.fetched if one.size])
    return response


def _has_files(data: PartitionData) -> bool:
    return isinstance(data.records, Splice) and any(isinstance(piece, FilePiece) for piece in data.records.pieces)
