"""Kafka's record batch, version 2: the one format in which everything is stored, as it is written and read outside the kernels.

     batch:   the header of 61 bytes drawn in queue/batch.py, then records, compressed as a whole or not at all
     record:  length | 0 | time delta | offset delta | key | value | number of headers | name, value of each header

All numbers of a record are varints (varint.py); a key, a value or a name is its length and its bytes, and the length -1 is null.

Kafka uses the lower byte of a batch's attributes. Ours has the origin of the batch in the upper one: which gateway wrote it, and
so whose headers in it are Penstock's own. Kafka's clients do not look at it, and cannot set it: the Kafka gateway refuses that.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from penstock.core.checksum import crc32c
from penstock.core.errors import CorruptionError
from penstock.core.record_compression import decompress
from penstock.core.varint import read_varint, varint

HEADER_SIZE: Final = 61
LENGTH_FROM: Final = 12  # the length of a batch counts the bytes from here on
CRC_FROM: Final = 21  # its checksum covers the bytes from here on
# Fields of the header, for what reads or changes only one of them.
BASE_OFFSET, LENGTH, CHECKSUM, ATTRIBUTES, LAST_DELTA = slice(0, 8), slice(8, 12), slice(17, 21), slice(21, 23), slice(23, 27)
BASE_MS, MAX_MS, PRODUCER_ID, BASE_SEQUENCE = slice(27, 35), slice(35, 43), slice(43, 51), slice(53, 57)
ORIGIN_BYTE: Final = 21  # the upper byte of the attributes, with the origin
KIND_BYTE: Final = 22  # the lower byte of the attributes, with TRANSACTIONAL and CONTROL
PRODUCER_AT: Final = 43  # producer id, producer epoch and base sequence, one after another
MAGIC: Final = 2
CODEC_MASK, APPEND_TIME, TRANSACTIONAL, CONTROL = 0x07, 0x08, 0x10, 0x20
ORIGIN_MASK: Final = 0xFF00
FROM_YDB, FROM_YT, FROM_STREAMS = 0x0100, 0x0200, 0x0300
OWN_PREFIXES: Final = {FROM_YDB: b"ydb.", FROM_YT: b"penstock.", FROM_STREAMS: b"penstock."}  # of headers that are our own

Octets = bytes | bytearray | memoryview
Header = tuple[bytes, bytes | None]

BATCH_HEADER: Final = Struct(">qiibIhiqqqhii")
_BEFORE_CRC: Final = Struct(">qiib")
_AFTER_CRC: Final = Struct(">hiqqqhii")
_CRC: Final = Struct(">I")
_NULL: Final = varint(-1)


class Writer(NamedTuple):
    """The producer of a batch; -1 for none."""

    producer_id: int = -1
    epoch: int = -1
    sequence: int = -1


NO_WRITER: Final = Writer()


class BatchHeader(NamedTuple):
    """What the header of a batch says."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    checksum: int
    attributes: int
    last_delta: int
    base_ms: int
    max_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    message_count: int

    @property
    def next_offset(self) -> int:
        """The offset after its last record."""
        return self.base_offset + self.last_delta + 1

    @property
    def is_control(self) -> bool:
        """Whether it is a marker that ends a transaction, and not data."""
        return bool(self.attributes & CONTROL)

    @property
    def is_transactional(self) -> bool:
        """Whether it belongs to a transaction."""
        return bool(self.attributes & TRANSACTIONAL)

    def is_from(self, origin: int, marked_from: int) -> bool:
        """Whether a gateway wrote it. Batches before `marked_from` are older than such marks: there every gateway may have."""
        return self.attributes & ORIGIN_MASK == origin or self.base_offset < marked_from

    @property
    def own_prefix(self) -> bytes | None:
        """What headers begin with that the gateway which wrote the batch has added for itself; None if it adds none."""
        return OWN_PREFIXES.get(self.attributes & ORIGIN_MASK)

    @property
    def stamp_ms(self) -> int | None:
        """The time of all its records, if the broker has stamped them; None if each has its own."""
        return self.max_ms if self.attributes & APPEND_TIME else None


def header_at(data: Octets, at: int = 0) -> BatchHeader:
    """The header of the batch that begins at a byte."""
    return BatchHeader._make(BATCH_HEADER.unpack_from(data, at))


def base_offset_of(batch: Octets) -> int:
    """Return the offset of a batch's first record."""
    return int.from_bytes(batch[BASE_OFFSET], "big")


def next_offset_of(batch: Octets) -> int:
    """Return the offset after a batch's last record."""
    return base_offset_of(batch) + int.from_bytes(batch[LAST_DELTA], "big") + 1


def seal_batch(batch: bytearray) -> None:
    """Set the length and the checksum of a batch whose header or records have changed."""
    batch[LENGTH] = (len(batch) - LENGTH_FROM).to_bytes(4, "big")
    batch[CHECKSUM] = crc32c(memoryview(batch)[CRC_FROM:]).to_bytes(4, "big")


def framed(
    records: Octets,
    count: int,
    times_ms: tuple[int, int],
    *,
    attributes: int = 0,
    writer: Writer = NO_WRITER,
    base_offset: int = 0,
    leader_epoch: int = 0,
) -> bytes:
    """Records, compressed already if `attributes` say so, behind the header of their batch; the first and the latest time."""
    tail = _AFTER_CRC.pack(attributes, count - 1, *times_ms, *writer, count)
    head = _BEFORE_CRC.pack(base_offset, HEADER_SIZE - LENGTH_FROM + len(records), leader_epoch, MAGIC)
    return b"".join((head, _CRC.pack(crc32c(records, crc32c(tail))), tail, records))


def plain_records(batch: Octets, header: BatchHeader) -> memoryview:
    """The records of a batch without their compression. One that compaction has left no record in is not compressed, whatever it
    says."""
    if not header.message_count:
        return memoryview(b"")
    try:
        return decompress(header.attributes & CODEC_MASK, memoryview(batch)[HEADER_SIZE:])
    except ValueError as error:
        raise CorruptionError(f"the batch at offset {header.base_offset} does not decompress: {error}") from error


def packed_record(
    delta: int, value: bytes | None, *, key: bytes | None = None, headers: Sequence[Header] = (), time_delta: int = 0
) -> bytes:
    """One record."""
    body = b"\0" + varint(time_delta) + varint(delta) + packed_octets(key) + packed_octets(value) + varint(len(headers))
    if headers:
        body = b"".join((body, *[packed_header(name, text) for name, text in headers]))
    return varint(len(body)) + body


def packed_header(name: bytes, value: bytes | None) -> bytes:
    """One header of a record."""
    return varint(len(name)) + name + packed_octets(value)


def packed_octets(content: bytes | None) -> bytes:
    """A key or a value."""
    return _NULL if content is None else varint(len(content)) + content


def read_octets(data: Octets, at: int) -> tuple[bytes | None, int]:
    """The key, value or name that begins at a byte, and the byte after it. IndexError if it does not end."""
    size, at = read_varint(data, at)
    if size < 0:
        return None, at
    if at + size > len(data):
        raise IndexError
    return bytes(data[at : at + size]), at + size


def read_headers(data: Octets, at: int) -> list[Header]:
    """The headers whose number begins at a byte of some records. CorruptionError if they do not end."""
    headers: list[Header] = []
    try:
        count, at = read_varint(data, at)
        for _ in range(count):
            size, begin = read_varint(data, at)
            end = begin + size if size > 0 else begin  # a name cannot be null, but who knows who wrote it
            size, at = read_varint(data, end)
            if size < 0:
                headers.append((bytes(data[begin:end]), None))
            else:
                headers.append((bytes(data[begin:end]), bytes(data[at : at + size])))
                at += size
    except IndexError:
        at = len(data) + 1
    if at > len(data):
        raise CorruptionError("the headers of a record are longer than the record")
    return headers


def without_own(headers: list[Header], own_prefix: bytes | None) -> list[Header]:
    """Headers as other gateways show them: without those that a gateway has added for itself."""
    return headers if own_prefix is None else [header for header in headers if not header[0].startswith(own_prefix)]
