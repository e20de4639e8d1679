"""Validates produced batches and queues them for their partition: records are checked as Kafka's brokers check them, and
recompressed and stamped as the topic requires.

Work of microseconds is done at once on the event loop, longer work in threads. While a batch is in a thread, later batches of its
partition wait, so that all are stored in the order of arrival.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, NamedTuple

from penstock.blob import Buffer
from penstock.broker.errors import InvalidTimestampError
from penstock.broker.route import Route
from penstock.broker.schema_rules import AllowedIds, MissingChecksError, SchemaIds, SchemaRule, UnknownSchemaError
from penstock.core.clock import Clock
from penstock.core.errors import PenstockError
from penstock.core.record_compression import GZIP, NONE
from penstock.core.record_format import APPEND_TIME, CODEC_MASK, HEADER_SIZE
from penstock.kernels.produce_frame import RECORDS_MAX, ProducedBatch
from penstock.kernels.schema_ids import find_unknown
from penstock.queue import (
    Batch,
    InvalidBatchError,
    Partition,
    SourceWrite,
    TimeRange,
    WriteOutcome,
    check_batch,
    check_plain_records,
    plain_records_of,
    producer_source,
    recompressed,
)
from penstock.schemas import ValueCheck

log = logging.getLogger(__name__)

THREADS = 2
# What is looked at in place: so many records, so many bytes of compressed ones, which grow to so many at most.
RECORDS_IN_PLACE = RECORDS_MAX
PACKED_BYTES_IN_PLACE = 8 << 10
GZIP_BYTES_IN_PLACE = 2 << 10
PLAIN_BYTES_IN_PLACE = 64 << 10


class _Examination(NamedTuple):
    """A batch that is looked at, and by which rules. It changes nothing, in whichever thread it runs."""

    batch: Batch
    route: Route
    from_client: bool
    now_ms: int
    allowed_ids: AllowedIds | None
    checks: Mapping[int, ValueCheck] | None  # of schemas that messages must match; None if their bytes may be anything

    def run(self, plain: memoryview | None = None) -> Batch:
        """The batch as it is stored; `plain` are its records without compression, where these are known."""
        batch, route = self.batch, self.route
        times = TimeRange(batch.base_timestamp, batch.max_timestamp)
        if plain is None and (self.from_client or route.must_look(batch)):
            plain = plain_records_of(batch)
        if plain is not None and (self.from_client or route.needs_keys):
            times = check_plain_records(batch, plain, needs_keys=route.needs_keys)
        if plain is not None and self.allowed_ids is not None:
            self.allowed_ids.check(plain, 0, batch.messages)
            if self.checks is not None:
                self.allowed_ids.check_payloads(plain, 0, batch.messages, self.checks)
        if plain is not None and route.must_recompress(batch):
            assert route.codec is not None
            batch = check_batch(
                recompressed(batch, plain, route.codec, route.codec_level), route.partition.config.batch_bytes_max
            )
        return route.stamped(batch, times, self.now_ms)

    def named_ids(self) -> list[int]:
        """The ids of schemas that its records name."""
        assert self.allowed_ids is not None, "it is looked at with ids"
        return self.allowed_ids.named_ids(plain_records_of(self.batch), 0, self.batch.messages)

    def plain_in_place(self) -> memoryview | None:
        """The records without compression if the whole examination takes microseconds; None if it is for a thread."""
        batch = self.batch
        codec = batch.codec
        if self.route.must_recompress(batch) or self.checks is not None:
            return None
        if codec == NONE:
            return plain_records_of(batch) if batch.messages <= RECORDS_IN_PLACE else None
        if len(batch.data) > (GZIP_BYTES_IN_PLACE if codec == GZIP else PACKED_BYTES_IN_PLACE):
            return None
        try:
            return plain_records_of(batch, PLAIN_BYTES_IN_PLACE)
        except InvalidBatchError:
            return None  # too long, or damaged: a thread finds out


class _Entry:
    """A batch in its turn. `batch` or `error` is set once it was looked at."""

    __slots__ = ("admit", "batch", "error", "outcome", "source", "work")

    def __init__(self, outcome: WriteOutcome, source: SourceWrite | None, admit: Callable[[], None] | None) -> None:
        self.outcome = outcome
        self.source = source
        self.admit = admit
        self.batch: Batch | None = None
        self.error: PenstockError | None = None
        self.work: asyncio.Future[Batch] | None = None

    def finish(self, partition: Partition) -> None:
        """Queue the batch, or tell its writer why not."""
        error = self.error
        if error is None:
            assert self.batch is not None
            try:
                if self.admit is not None:
                    self.admit()
                partition.enqueue(self.batch, self.source or producer_source(self.batch), self.outcome)
            except PenstockError as refused:
                error = refused
        if error is not None and not self.outcome.done():
            self.outcome.set_exception(error)


class Intake:
    """Takes batches for all partitions of a broker."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.schema_ids: SchemaIds | None = None  # set where there is a registry
        self.lanes: dict[Partition, deque[_Entry]] = {}  # of partitions that have a batch in a thread

    def begin_parsed(self, route: Route, batch: ProducedBatch) -> int:
        """Queue a client's batch that a kernel has parsed; the batch object itself receives the outcome. See
        `Broker.begin_produce`."""
        if self.lanes or not route.is_plain(batch, self.clock):
            return self.begin(route, batch.data, batch, None, from_client=True, admit=None)
        if route.schema_rule is not None:
            # The ids of the topic are mostly known, and right: then this is the only call.
            ids = self.schema_ids
            kept = None if ids is None else ids.current.get(route.topic.name)
            if (
                kept is None
                or kept[0] != route.schema_rule
                or kept[0].decodes
                or kept[1].key is not None
                or kept[1].value is None
                or find_unknown(batch.data, HEADER_SIZE, batch.messages, kept[1].value, False, -1)[0] >= 0
            ):
                return self.begin(route, batch.data, batch, None, from_client=True, admit=None)
        route.enqueue(batch)
        return -1

    def begin(
        self,
        route: Route,
        raw: Buffer,
        outcome: WriteOutcome,
        source: SourceWrite | None,
        *,
        from_client: bool,
        admit: Callable[[], None] | None,
    ) -> int:
        """See `Broker.begin_produce`."""
        partition = route.partition
        batch = check_batch(raw, partition.config.batch_bytes_max)
        now_ms = int(self.clock.wall() * 1000) if route.uses_append_time or route.limits is not None else -1
        append_time_ms = now_ms if route.uses_append_time else -1
        allowed_ids = None if route.schema_rule is None else self._allowed_ids(route, route.schema_rule)
        checks = self._checks(route.schema_rule)
        if from_client:
            check_header(batch)
            # As with `begin_parsed`, a short way for what most batches are.
            is_short = not (batch.attributes & CODEC_MASK or route.codec or self.lanes) and batch.messages <= RECORDS_IN_PLACE
            if is_short and allowed_ids is None:
                times = check_plain_records(batch, batch.data, HEADER_SIZE, needs_keys=route.needs_keys)
                batch = route.stamped(batch, times, now_ms)
                partition.enqueue(batch, source or producer_source(batch), outcome)
                return append_time_ms
        examination = _Examination(batch, route, from_client, now_ms, allowed_ids, checks)
        plain: memoryview | None = None
        must_look = from_client or route.must_look(batch)
        if must_look and (plain := examination.plain_in_place()) is None:
            self._examine_later(partition, self._examine_in_thread(examination), _Entry(outcome, source, admit))
            return append_time_ms
        try:
            batch = examination.run(plain)
        except UnknownSchemaError:
            if not self._may_learn(route.schema_rule):
                raise
            self._examine_later(partition, self._examine_caught_up(examination), _Entry(outcome, source, admit))
            return append_time_ms
        lane = self.lanes.get(partition)
        if lane is None:
            partition.enqueue(batch, source or producer_source(batch), outcome)
        else:
            entry = _Entry(outcome, source, admit)
            entry.batch = batch
            lane.append(entry)
        return append_time_ms

    def _allowed_ids(self, route: Route, rule: SchemaRule) -> AllowedIds:
        topic = route.topic.name
        if self.schema_ids is None:
            raise InvalidBatchError(
                f"messages of topic {topic!r} are checked against schemas, and this node has no schema registry; write to a node "
                "that has, or set the topic's penstock.schema.validation to none"
            )
        return self.schema_ids.allowed(topic, rule)

    def _may_learn(self, rule: SchemaRule | None) -> bool:
        """Whether a schema that is not known here may be allowed all the same."""
        return self.schema_ids is not None and rule is not None and self.schema_ids.may_learn(rule)

    def _checks(self, rule: SchemaRule | None) -> Mapping[int, ValueCheck] | None:
        return None if rule is None or not rule.decodes or self.schema_ids is None else self.schema_ids.checks()

    async def _examine_in_thread(self, examination: _Examination) -> Batch:
        try:
            return await self._decode(examination)
        except UnknownSchemaError:
            if not self._may_learn(examination.route.schema_rule):
                raise
        return await self._examine_caught_up(examination)

    async def _examine_caught_up(self, examination: _Examination) -> Batch:
        """Look at a batch with all schemas that other nodes have registered by now."""
        rule = examination.route.schema_rule
        assert self.schema_ids is not None, "it was looked at with ids"
        assert rule is not None, "it was looked at with ids"
        named = await asyncio.get_running_loop().run_in_executor(_threads(), examination.named_ids)
        await self.schema_ids.learn(rule, named)
        return await self._decode(examination._replace(allowed_ids=self._allowed_ids(examination.route, rule)))

    async def _decode(self, examination: _Examination) -> Batch:
        """Run an examination in a thread; if it decodes messages, with the checks of all schemas that they name."""
        run_in_thread = asyncio.get_running_loop().run_in_executor
        try:
            return await run_in_thread(_threads(), examination.run)
        except MissingChecksError as missing:
            assert self.schema_ids is not None, "it was looked at with ids"
            assert examination.checks is not None, "only those miss any"
            loaded = await self.schema_ids.load_checks(missing.schema_ids)
            checks = {**examination.checks, **loaded}
        return await run_in_thread(_threads(), examination._replace(checks=checks).run)

    def _examine_later(self, partition: Partition, examining: Coroutine[Any, Any, Batch], entry: _Entry) -> None:
        self.lanes.setdefault(partition, deque()).append(entry)
        work = entry.work = asyncio.create_task(examining, name="examine-batch")

        def done(work: asyncio.Future[Batch]) -> None:
            try:
                entry.batch = work.result()
            except PenstockError as error:
                entry.error = error
            except (Exception, asyncio.CancelledError) as error:
                log.error("a batch for partition %d could not be checked", partition.number, exc_info=error)
                entry.error = InvalidBatchError("the batch could not be checked; the log of the broker says why")
            self._advance(partition)

        work.add_done_callback(done)

    def _advance(self, partition: Partition) -> None:
        """Queue what is ready at the front of a partition's lane."""
        lane = self.lanes[partition]
        while lane and (lane[0].batch is not None or lane[0].error is not None):
            lane.popleft().finish(partition)
        if not lane:
            del self.lanes[partition]


def check_header(batch: Batch) -> None:
    """What a client may not say in the header of a batch."""
    if batch.base_offset:
        raise InvalidBatchError(f"the batch begins at offset {batch.base_offset}; producers number the messages of each from 0")
    if batch.base_sequence < 0 <= batch.producer_id:
        raise InvalidBatchError(f"producer {batch.producer_id} sends a batch with sequence number {batch.base_sequence}")
    if batch.attributes & APPEND_TIME:
        raise InvalidTimestampError("the batch says that it was stamped when it was stored; that is for the broker to say")


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(THREADS, thread_name_prefix="penstock-intake")
