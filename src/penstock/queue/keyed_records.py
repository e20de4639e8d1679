"""Whether all records of a batch have a key, as a topic asks that keeps the last message of each."""

from __future__ import annotations

from penstock.core.errors import CorruptionError
from penstock.core.record_compression import decompress
from penstock.core.record_format import CODEC_MASK, HEADER_SIZE
from penstock.core.varint import read_varint
from penstock.kernels.compaction import first_keyless
from penstock.queue.batch import Batch
from penstock.queue.errors import InvalidBatchError, KeylessRecordError


def check_keys(batch: Batch) -> None:
    """KeylessRecordError unless every record has a key; InvalidBatchError if the records cannot be read at all."""
    try:
        records = decompress(batch.attributes & CODEC_MASK, batch.data[HEADER_SIZE:])
        keyless = first_keyless(records, batch.messages)
    except (ValueError, CorruptionError) as error:
        raise InvalidBatchError(f"the records of the batch cannot be looked at: {error}") from error
    if keyless >= 0:
        raise KeylessRecordError(
            f"message {keyless} of the batch has no key, and the topic is compacted: it keeps the last message of each key. "
            "Nothing of the batch was stored; send messages with keys, or set the topic's cleanup.policy to delete",
            _keyless(records, batch.messages),
        )


def _keyless(records: memoryview, count: int) -> tuple[int, ...]:
    """All records without a key, for the producer to know which; as far as they can be read."""
    found: list[int] = []
    at = 0
    for number in range(count):
        try:
            size, begin = read_varint(records, at)
            _, after = read_varint(records, begin + 1)  # the timestamp, after a byte of attributes
            _, after = read_varint(records, after)  # the offset
            key_size, _ = read_varint(records, after)
        except IndexError:
            break
        if key_size < 0:
            found.append(number)
        at = begin + size
    return tuple(found)
