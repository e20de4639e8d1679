"""Partitions: queues of record batches on KV tablets (seed 000)."""

from penstock.queue.backlog import Backlog, ProfilePoint, backlog_in, backlog_of, profile_of
from penstock.queue.batch import Batch, check_batch, split_batches, with_append_time, with_latest_time
from penstock.queue.body import ReadResult
from penstock.queue.cache import BlobCache
from penstock.queue.compaction import Dirt, Offload, PassSummary, compact, dirt_of, in_place
from penstock.queue.config import PartitionConfig
from penstock.queue.counting import count_messages, offset_of_last
from penstock.queue.errors import (
    BatchTooLargeError,
    CorruptBatchError,
    InvalidBatchError,
    KeylessRecordError,
    OffsetOutOfRangeError,
    OpenTransactionError,
    PartitionFullError,
    SequenceError,
    StaleEpochError,
    UnknownPartitionError,
    UnsupportedCodecError,
    WriteQueueFullError,
)
from penstock.queue.marker import coordinator_epoch_of, make_marker, marker_source
from penstock.queue.partition import Partition
from penstock.queue.partition_append import WriteOutcome, WriteResult
from penstock.queue.probe import QueueProbe
from penstock.queue.queue_tablet import QueueTablet, stored_partitions
from penstock.queue.recompression import recompressed
from penstock.queue.record_check import TimeRange, check_plain_records, plain_records_of
from penstock.queue.replay import appends_as_keys
from penstock.queue.salvage import LostOffsets, SalvagePlan, plan_salvage
from penstock.queue.scanned_batch import (
    ScannedBatch,
    committed_batches,
    is_aborted,
    is_transactional,
    joined,
    scan_batch,
)
from penstock.queue.sources import SourceState, SourceWrite, producer_source
from penstock.queue.transaction_ends import TransactionGuard
from penstock.queue.transactions import Aborted

__all__ = [
    "Aborted",
    "Backlog",
    "Batch",
    "BatchTooLargeError",
    "BlobCache",
    "CorruptBatchError",
    "Dirt",
    "InvalidBatchError",
    "KeylessRecordError",
    "LostOffsets",
    "Offload",
    "OffsetOutOfRangeError",
    "OpenTransactionError",
    "Partition",
    "PartitionConfig",
    "PartitionFullError",
    "PassSummary",
    "ProfilePoint",
    "QueueProbe",
    "QueueTablet",
    "ReadResult",
    "SalvagePlan",
    "ScannedBatch",
    "SequenceError",
    "SourceState",
    "SourceWrite",
    "StaleEpochError",
    "TimeRange",
    "TransactionGuard",
    "UnknownPartitionError",
    "UnsupportedCodecError",
    "WriteOutcome",
    "WriteQueueFullError",
    "WriteResult",
    "appends_as_keys",
    "backlog_in",
    "backlog_of",
    "check_batch",
    "check_plain_records",
    "committed_batches",
    "compact",
    "coordinator_epoch_of",
    "count_messages",
    "dirt_of",
    "in_place",
    "is_aborted",
    "is_transactional",
    "joined",
    "make_marker",
    "marker_source",
    "offset_of_last",
    "plain_records_of",
    "plan_salvage",
    "producer_source",
    "profile_of",
    "recompressed",
    "scan_batch",
    "split_batches",
    "stored_partitions",
    "with_append_time",
    "with_latest_time",
]
