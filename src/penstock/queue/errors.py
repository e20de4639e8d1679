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
    """The batch, or what a topic holds, is compressed in a way that the version of the request does not know."""

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
    """As much waits to be written to the partition as may; nothing was written, and the same write may succeed in a moment."""

    code = "write_queue_full"


class OffsetOutOfRangeError(InvalidRequestError):
    """There is no such offset, and there will be none before others are written or never again."""

    code = "offset_out_of_range"


class SequenceError(InvalidRequestError):
    """A source's numbers do not continue what it has written."""

    code = "out_of_order_sequence"


class StaleEpochError(InvalidRequestError):
    """A newer owner of the source has written; this one may not any more."""

    code = "stale_epoch"


class OpenTransactionError(InvalidRequestError):
    """A producer writes outside of the transaction that it has open in the partition."""

    code = "open_transaction"


class UnknownPartitionError(InvalidRequestError):
    """The tablet has no such partition."""

    code = "unknown_partition"


class PartitionFullError(OutOfSpaceError):
    """The partition is at its limit, or its storage is: it takes no more until space is free."""

    code = "partition_full"
