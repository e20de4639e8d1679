"""What can go wrong with a partition, beyond the kinds every layer has."""

from __future__ import annotations

from penstock.core.errors import InvalidRequestError, OutOfSpaceError, UnavailableError


class InvalidBatchError(InvalidRequestError):
    """The bytes are not a record batch that can be stored."""

    code = "invalid_batch"


class CorruptBatchError(InvalidBatchError):
    """The batch does not match its own checksum: it was damaged on its way."""

    code = "corrupt_batch"


class BatchTooLargeError(InvalidBatchError):
    """The batch is larger than the topic takes."""

    code = "batch_too_large"


class UnsupportedCodecError(InvalidBatchError):
    """The batch, or the topic's data, uses a compression codec that this version of the request does not support."""

    code = "unsupported_codec"


class KeylessRecordError(InvalidBatchError):
    """A message without a key, sent to a topic that keeps the last message of each key."""

    code = "keyless_record"

    def __init__(self, message: str, records: tuple[int, ...]) -> None:
        super().__init__(message)
        self.records = records  # which of the batch, counted from 0


class BodyReplacedError(UnavailableError):
    """A body blob was deleted or replaced while it was being read; read the offset again to get what is stored now."""

    code = "body_replaced"


class WriteQueueFullError(UnavailableError):
    """The partition's write queue is full; nothing was written, and a retry may succeed in a moment."""

    code = "write_queue_full"


class OffsetOutOfRangeError(InvalidRequestError):
    """The offset is before the start of the partition or after its end."""

    code = "offset_out_of_range"


class SequenceError(InvalidRequestError):
    """A source's sequence number does not follow its last write."""

    code = "out_of_order_sequence"


class StaleEpochError(InvalidRequestError):
    """A newer epoch of the source has written; this one is fenced."""

    code = "stale_epoch"


class OpenTransactionError(InvalidRequestError):
    """A producer writes outside of the transaction that it has open in the partition."""

    code = "open_transaction"


class UnknownPartitionError(InvalidRequestError):
    """The tablet has no such partition."""

    code = "unknown_partition"


class PartitionFullError(OutOfSpaceError):
    """The partition or its storage is full: writes are rejected until space is freed."""

    code = "partition_full"
