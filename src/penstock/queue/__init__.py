"""Partitions: queues of record batches on KV tablets (seed 000)."""

from penstock.queue.batch import Batch, check_batch, split_batches, with_append_time
from penstock.queue.cache import BlobCache
from penstock.queue.config import PartitionConfig
from penstock.queue.errors import (
    BatchTooLargeError,
    CorruptBatchError,
    InvalidBatchError,
    OffsetOutOfRangeError,
    PartitionFullError,
    SequenceError,
    StaleEpochError,
    UnknownPartitionError,
)
from penstock.queue.partition import Partition, ReadResult
from penstock.queue.queue_tablet import QueueTablet
from penstock.queue.sources import SourceState, SourceWrite
from penstock.queue.transactions import Aborted
from penstock.queue.write_cycle import WriteOutcome, WriteResult

__all__ = [
    "Aborted",
    "Batch",
    "BatchTooLargeError",
    "BlobCache",
    "CorruptBatchError",
    "InvalidBatchError",
    "OffsetOutOfRangeError",
    "Partition",
    "PartitionConfig",
    "PartitionFullError",
    "QueueTablet",
    "ReadResult",
    "SequenceError",
    "SourceState",
    "SourceWrite",
    "StaleEpochError",
    "UnknownPartitionError",
    "WriteOutcome",
    "WriteResult",
    "check_batch",
    "split_batches",
    "with_append_time",
]
