"""Fetch: returns batches of partitions, from memory or straight from files, and waits for `min_bytes` of them."""

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
from penstock.gateway.kafka.fetch_sessions import NO_SESSION, FetchSession, SessionPartition
from penstock.gateway.kafka.own_headers import ReadRequest, read_as_kafka
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


class _PartitionResult(NamedTuple):
    """The result of one partition."""

    wanted: SessionPartition
    data: PartitionData
    partition: Partition | None
    size: int


class _FetchRound(NamedTuple):
    """The results of all partitions, and how many bytes they held at that time."""

    fetched: list[_PartitionResult]
    size: int
    has_errors: bool
    held: int

    def held_now(self) -> int:
        """Returns how many bytes the partitions hold now."""
        return sum(result.partition.size for result in self.fetched if result.partition is not None)


async def fetch(call: Call, request: FetchRequest) -> FetchResponse:
    """Reads every requested partition; below `min_bytes`, waits for new records and reads again."""
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
    fetch_round = await _read_all(call, request, wanted, bytes_max)
    while fetch_round.size < request.min_bytes and not fetch_round.has_errors and not call.peer.must_hurry():
        left_s = deadline - node.clock.monotonic()
        if left_s <= 0 or not wanted:
            break
        await _wait_for_more(call, fetch_round, left_s)
        grown = fetch_round.held_now() - fetch_round.held
        now = node.clock.monotonic()
        call.waited_s += now - (deadline - left_s)
        is_last = call.peer.must_hurry() or now >= deadline
        if grown and (is_last or fetch_round.size + grown >= request.min_bytes):
            fetch_round = await _read_all(call, request, wanted, bytes_max)
    is_incremental = session is not None and request.session_id == session.id
    response = _respond(fetch_round, session, incremental=is_incremental)
    call.has_files = any(_has_files(result.data) for result in fetch_round.fetched)
    call.size = fetch_round.size
    call.is_refused = fetch_round.has_errors
    if limit is not None:
        # The next request waits for what this one drew above the quota.
        limit.draw(fetch_round.size)
    return response


def _throttled(call: Call, request: FetchRequest, session: FetchSession | None, wait_ms: int) -> FetchResponse:
    """Returns an empty response with the throttle time, for a client over its quota."""
    call.peer.mute(wait_ms / 1000)
    if session is not None and request.session_id != session.id:
        # A session begins with a reply that names all its partitions, and this one names none.
        call.node.sessions.drop(session)
        session = None
    return FetchResponse(throttle_time_ms=wait_ms, session_id=NO_SESSION if session is None else session.id)


async def _read_all(call: Call, request: FetchRequest, wanted: list[SessionPartition], bytes_max: int) -> _FetchRound:
    """Reads every partition, up to `bytes_max` in all; the first with records returns at least one batch."""
    fetched: list[_PartitionResult] = []
    size = 0
    for partition in wanted:
        result = await _read_one(call, request, partition, bytes_max - size, at_least_one=size == 0)
        fetched.append(result)
        size += result.size
    has_errors = any(result.data.error_code or result.data.diverging_epoch for result in fetched)
    fetch_round = _FetchRound(fetched, size, has_errors, 0)
    return fetch_round._replace(held=fetch_round.held_now())


async def _read_one(
    call: Call, request: FetchRequest, wanted: SessionPartition, bytes_left: int, *, at_least_one: bool
) -> _PartitionResult:
    partition_request = wanted.request
    index = partition_request.partition
    data = PartitionData(partition_index=index, high_watermark=-1, records=NO_RECORDS, aborted_transactions=None)
    node = call.node
    try:
        if node.access is not None and not may_topic(call, Operation.READ, wanted.topic):
            data.error_code = errors.TOPIC_AUTHORIZATION_FAILED
            return _PartitionResult(wanted, data, None, 0)
        topic = find_topic(node, wanted.topic)
        partition = node.broker.partition(topic, index)
        if call.version < ZSTD_FROM and topic.config.codec == ZSTD:
            raise UnsupportedCodecError(f"what topic {topic.name!r} holds is in zstd, which needs Fetch version {ZSTD_FROM}")
        data.error_code = epoch_error(partition, partition_request.current_leader_epoch)
        if data.error_code:
            return _PartitionResult(wanted, data, None, 0)
        bytes_max = min(partition_request.partition_max_bytes, bytes_left)
        shows_all = topic.config.shows_own_headers
        read = ReadRequest(bytes_max, files=call.peer.takes_files, at_least_one=at_least_one, shows_all=shows_all)
        size = await _read_partition(partition, request, partition_request, data, read)
    except PenstockError as error:
        data.error_code = topic_code(error)
        return _PartitionResult(wanted, data, None, 0)
    return _PartitionResult(wanted, data, partition, size)


async def _read_partition(
    partition: Partition,
    request: FetchRequest,
    partition_request: FetchPartition,
    data: PartitionData,
    read: ReadRequest,
) -> int:
    """Fills in the offsets and batches of a partition. Returns the bytes of the batches."""
    data.high_watermark, data.log_start_offset = partition.end_offset, partition.start_offset
    data.last_stable_offset = partition.stable_offset
    offset = partition_request.fetch_offset
    if not partition.start_offset <= offset <= partition.end_offset:
        raise OffsetOutOfRangeError(f"offset {offset} is not within {partition.start_offset}..{partition.end_offset}")
    if partition_request.last_fetched_epoch >= 0:
        epoch, end_offset = partition.epoch_end(partition_request.last_fetched_epoch)
        if 0 <= epoch < partition_request.last_fetched_epoch or 0 <= end_offset < offset:
            data.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end_offset)
            return 0
    is_committed = request.isolation_level == READ_COMMITTED
    if is_committed:
        data.aborted_transactions = []
    until = partition.stable_offset if is_committed else partition.end_offset
    if offset >= until or (read.bytes_max <= 0 and not read.at_least_one):
        return 0
    read_result = await read_as_kafka(partition, offset, until, read)
    data.records = Splice(read_result.batches, read_result.size)
    if is_committed:
        aborted = partition.aborted_between(offset, read_result.next_offset)
        data.aborted_transactions = [
            AbortedTransaction(producer_id=txn.producer_id, first_offset=txn.first_offset) for txn in aborted
        ]
    return read_result.size


async def _wait_for_more(call: Call, fetch_round: _FetchRound, timeout_s: float) -> None:
    """Waits until one of the partitions grows, the timeout expires, or the connection asks for the reply."""
    loop = asyncio.get_running_loop()
    waiter: asyncio.Future[None] = loop.create_future()
    partitions = [result.partition for result in fetch_round.fetched if result.partition is not None]
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


def _respond(fetch_round: _FetchRound, session: FetchSession | None, *, incremental: bool) -> FetchResponse:
    response = FetchResponse(session_id=NO_SESSION if session is None else session.id)
    topics: dict[str | bytes, FetchableTopicResponse] = {}
    for wanted, data, _, _ in fetch_round.fetched:
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
        session.rotate([result.wanted for result in fetch_round.fetched if result.size])
    return response


def _has_files(data: PartitionData) -> bool:
    return isinstance(data.records, Splice) and any(isinstance(piece, FilePiece) for piece in data.records.pieces)
