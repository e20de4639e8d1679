"""The way of a batch to its partition: what the topic asks of it, and the shortest way for those that need no closer look."""

from __future__ import annotations

from penstock.broker.schema_rules import SchemaRule
from penstock.broker.timestamps import UNLIMITED_MS, TimestampLimits
from penstock.broker.topic import Topic
from penstock.core.clock import Clock
from penstock.kernels.produce_frame import ProducedBatch
from penstock.queue import Batch, Partition, TimeRange, check_batch, producer_source, with_append_time, with_latest_time


class Route:
    """A partition that is served now, and its topic."""

    __slots__ = (
        "_after_ms",
        "_before_ms",
        "_writer",
        "codec",
        "codec_level",
        "epoch",
        "limits",
        "needs_keys",
        "partition",
        "schema_rule",
        "shows_own_headers",
        "topic",
        "uses_append_time",
    )

    def __init__(self, topic: Topic, partition: Partition) -> None:
        config = topic.config
        self.topic = topic
        self.partition = partition
        self._writer = partition.writer
        self.uses_append_time = config.uses_append_time
        self.codec: int | None = (
            config.codec
        )  # what batches are compressed with when they are stored; None: what they are sent in
        self.codec_level: int | None = config.codec_level  # how much recompressed batches are; None: the default of the codec
        self.limits: TimestampLimits | None = (
            config.timestamp_limits
        )  # of what producers say of the time; None: it may be anything
        self._before_ms, self._after_ms = self.limits or (UNLIMITED_MS, UNLIMITED_MS)
        self.needs_keys = config.is_compacted  # a message without a key is refused
        self.shows_own_headers = config.shows_own_headers  # those of other gateways are for Kafka's clients as well
        self.epoch = partition.epoch  # the leader epoch
        self.schema_rule: SchemaRule | None = config.schema_rule  # which schemas messages must name

    def is_plain(self, batch: ProducedBatch, clock: Clock) -> bool:
        """Whether a batch that a kernel has parsed is stored as it is. Schemas that its messages name are another question."""
        if not batch.is_checked or batch.latest_ms != batch.max_timestamp or self.codec or self.uses_append_time:
            return False
        if (self.needs_keys and batch.keyless >= 0) or len(batch.data) > self.partition.batch_bytes_max:
            return False
        if self.limits is None:
            return True
        now_ms = int(clock.wall() * 1000)
        return batch.latest_ms - now_ms <= self._after_ms and now_ms - batch.earliest_ms <= self._before_ms

    def enqueue(self, batch: ProducedBatch) -> None:
        """Queues a batch that is stored as it is; it is told of its outcome itself."""
        self._writer.enqueue(batch, None if batch.producer_id < 0 else producer_source(batch), batch)

    def must_recompress(self, batch: Batch) -> bool:
        """Whether a batch is stored in another compression than it came in."""
        return self.codec is not None and batch.codec != self.codec

    def must_look(self, batch: Batch) -> bool:
        """Whether the records of a batch must be decoded, whichever producer sent it."""
        return self.needs_keys or self.schema_rule is not None or self.must_recompress(batch)

    def stamped(self, batch: Batch, times: TimeRange, now_ms: int) -> Batch:
        """A batch whose records are of these times as it is stored now. InvalidTimestampError if they are out of bounds."""
        if self.limits is not None:
            self.limits.check(times, now_ms)
        if self.uses_append_time:
            return check_batch(with_append_time(batch.data, now_ms), self.partition.config.batch_bytes_max)
        if times.latest_ms != batch.max_timestamp:
            # As Kafka does: retention and searches by time go by what the header says.
            return check_batch(with_latest_time(batch.data, times.latest_ms), self.partition.config.batch_bytes_max)
        return batch
