"""Turns fetched batches into batches to produce elsewhere. No I/O.

Large batches are copied as they are, compression included. Small ones are joined, as each costs a request; so are those that no
producer could send: with gaps that compaction left, or stamped by the broker.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from penstock.client.record_batch import Record, committed_batches, decoded_records, encode_batch
from penstock.core.record_compression import NONE, compress_like
from penstock.core.record_format import (
    APPEND_TIME,
    BASE_OFFSET,
    CODEC_MASK,
    HEADER_SIZE,
    KIND_BYTE,
    ORIGIN_BYTE,
    PRODUCER_AT,
    TRANSACTIONAL,
    BatchHeader,
    Writer,
    seal_batch,
)

COPIED_WHOLE_BYTES: Final = 64 << 10
JOINED_BYTES: Final = 512 << 10  # less than what topics accept by default
_RECORD_OVERHEAD: Final = 32
_PRODUCER: Final = Struct(">qhi")


class CopiedBatch(NamedTuple):
    """A batch that is not numbered yet."""

    data: bytearray
    messages: int

    def stamp(self, writer: Writer) -> memoryview:
        """The batch as a part of a producer's transaction."""
        data = self.data
        data[BASE_OFFSET] = bytes(8)
        data[ORIGIN_BYTE] = 0
        data[KIND_BYTE] = data[KIND_BYTE] & CODEC_MASK | TRANSACTIONAL
        _PRODUCER.pack_into(data, PRODUCER_AT, *writer)
        seal_batch(data)
        return memoryview(data)


class BatchCopier:
    """Copies one partition: `position` is the next offset to fetch. Nothing at or after `end` is copied, if there is one."""

    def __init__(self, position: int, end: int | None) -> None:
        self.position = position
        self._end = end

    def take(self, data: memoryview, aborted: Sequence[tuple[int, int]]) -> list[CopiedBatch]:
        """The batches to write for what a fetch from the position has returned, in order."""
        copied: list[CopiedBatch] = []
        joined = _JoinedRecords(copied)
        for header, batch in committed_batches(data, aborted):
            if self._end is not None and header.base_offset >= self._end:
                break
            if batch is not None and header.message_count:
                codec = header.attributes & CODEC_MASK
                if self._is_copied_whole(header, batch):
                    joined.finish()
                    copied.append(CopiedBatch(bytearray(batch), header.message_count))
                else:
                    joined.use_codec(codec, batch[HEADER_SIZE:])
                    for record in decoded_records(batch, header):
                        if record.offset >= self.position:
                            joined.add(record)
            self.position = max(self.position, header.next_offset)
        joined.finish()
        return copied

    def _is_copied_whole(self, header: BatchHeader, batch: memoryview) -> bool:
        is_whole = header.base_offset >= self.position and header.message_count == header.last_delta + 1
        return is_whole and len(batch) >= COPIED_WHOLE_BYTES and not header.attributes & APPEND_TIME


class _JoinedRecords:
    """Records of small batches, which become one batch with the compression that they had."""

    def __init__(self, copied: list[CopiedBatch]) -> None:
        self._copied = copied
        self._records: list[Record] = []
        self._bytes = 0
        self._codec = NONE
        self._sent = memoryview(b"")

    def use_codec(self, codec: int, sent: memoryview) -> None:
        if codec != self._codec:
            self.finish()
        self._codec, self._sent = codec, sent

    def add(self, record: Record) -> None:
        size = len(record.key or b"") + len(record.value or b"") + _RECORD_OVERHEAD
        size += sum(len(name) + len(value or b"") for name, value in record.headers)
        if self._bytes + size > JOINED_BYTES:
            self.finish()
        self._records.append(record)
        self._bytes += size

    def finish(self) -> None:
        if not self._records:
            return
        batch = bytearray(encode_batch(self._records))
        if self._codec != NONE:
            batch[HEADER_SIZE:] = compress_like(self._codec, self._sent, memoryview(bytes(batch))[HEADER_SIZE:])
            batch[KIND_BYTE] |= self._codec
        self._copied.append(CopiedBatch(batch, len(self._records)))
        self._records = []
        self._bytes = 0
