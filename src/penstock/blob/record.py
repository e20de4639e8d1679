"""The stored form of everything in a VDisk's log: records, one after another in chunk files.

A record is a header of 64 bytes, a table of checksums if the body is long, and the body (integers big-endian):

      0      4   5    6     8        12       16      20       24         28          32     57     60      64
      +------+---+----+-----+--------+--------+-------+--------+----------+-----------+------+------+-------+
      |magic |ver|kind|zero |length  |checksum|chunk  |offset  |durable   |durable    |blob  |zero  |header |
      |"PENr"|1  |    |     |of body |of body |number |in chunk|chunk     |offset     |id    |      |crc32c |
      +------+---+----+-----+--------+--------+-------+--------+----------+-----------+------+------+-------+
      | table: crc32c of each 64 KiB of the body, only if the body is longer than that                      |
      +-----------------------------------------------------------------------------------------------------+
      | body                                                                                                |
      +-----------------------------------------------------------------------------------------------------+

The header names its own place, so a record found elsewhere is not believed. `checksum` covers the body, or the table where
there is one, so that a part of a long body can be read and verified alone. *Durable* is the end of what was known to be synced
when the record was written: damage before it is damage to acknowledged data, damage after it is a torn tail. In the head of a
chunk the *blob id* is a number: the first of the chunks before it that were abandoned, after writes that failed; 0 if none were.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple

from penstock.blob.blob_id import ID_SIZE
from penstock.blob.disk import Buffer
from penstock.blob.vector import Content, Vector
from penstock.core.checksum import crc32c
from penstock.kernels.block_sums import block_sums
from penstock.kernels.log_bytes import record_start

MAGIC = b"PENr"
VERSION = 1
HEADER_SIZE = 64
BLOCK_SIZE = 64 * 1024
TABLE_ENTRY_SIZE = 4  # of the checksum of a block
NO_ID = bytes(ID_SIZE)

_HEADER = Struct(">8sIIIIII25s3x")  # the first eight bytes, up to the length, are the same for all records of a kind
_CRC = Struct(">I")


class RecordKind(IntEnum):
    """What a record's body is."""

    CHUNK_HEAD = 1
    PART = 2
    META = 3
    SISTERS = 4


STARTS: Final = {int(kind): MAGIC + bytes([VERSION, kind, 0, 0]) for kind in RecordKind}


class Header(NamedTuple):
    """A record's header, verified."""

    kind: int
    length: int
    checksum: int
    chunk: int
    offset: int
    durable: tuple[int, int]
    blob_id: bytes

    @property
    def size(self) -> int:
        """Bytes of the whole record."""
        return record_size(self.length)


def abandoned_id(first: int) -> bytes:
    """What stands in place of a blob id in the head of a chunk before which the chunks from `first` on were abandoned."""
    return first.to_bytes(ID_SIZE, "big")


def abandoned_from(head: Header) -> int:
    """The first of the chunks just before the one with this head that were abandoned; its own number if none were."""
    return int.from_bytes(head.blob_id, "big") or head.chunk


def table_size(length: int) -> int:
    """Bytes of the checksum table of a body of this length."""
    return 0 if length <= BLOCK_SIZE else (length + BLOCK_SIZE - 1) // BLOCK_SIZE * TABLE_ENTRY_SIZE


def record_size(length: int) -> int:
    """Bytes of a record whose body has this length."""
    return HEADER_SIZE + length if length <= BLOCK_SIZE else HEADER_SIZE + table_size(length) + length


def block_table(body: Content) -> bytes:
    """The checksums of a long body, block by block."""
    return body.block_table(BLOCK_SIZE) if isinstance(body, Vector) else block_sums((body,), BLOCK_SIZE)


def encode(kind: int, blob_id: bytes, body: Content, place: tuple[int, int], durable: tuple[int, int]) -> tuple[Buffer, ...]:
    """The record as buffers to append; the body is not copied."""
    start = encode_start(kind, blob_id, body, place, durable)
    return (start, *body.buffers) if isinstance(body, Vector) else (start, body)


def encode_later(
    kind: int, blob_id: bytes, body: Content, place: tuple[int, int], durable: tuple[int, int]
) -> tuple[tuple[Buffer, ...], Callable[[], None]]:
    """The record as buffers whose first has the right length and no content yet, and what fills it in: the checksums of a long
    body are better computed beside the loop than on it."""
    start = bytearray(HEADER_SIZE + table_size(len(body)))

    def fill() -> None:
        start[:] = encode_start(kind, blob_id, body, place, durable)

    return (start, *body.buffers) if isinstance(body, Vector) else (start, body), fill


def encode_start(kind: int, blob_id: bytes, body: Content, place: tuple[int, int], durable: tuple[int, int]) -> Buffer:
    """What stands before the body."""
    length = len(body)
    chunk, offset = place
    durable_chunk, durable_offset = durable
    if length <= BLOCK_SIZE and not isinstance(body, Vector):
        return record_start(STARTS[kind], blob_id, body, length, chunk, offset, durable_chunk, durable_offset)
    table = b"" if length <= BLOCK_SIZE else block_table(body)
    checksum = crc32c(table) if table else body.checksum() if isinstance(body, Vector) else crc32c(body)
    head = _HEADER.pack(STARTS[kind], length, checksum, chunk, offset, durable_chunk, durable_offset, blob_id)
    return head + _CRC.pack(crc32c(head)) + table


def decode_header(raw: Buffer, chunk: int, offset: int) -> Header | None:
    """The header that stands at this place, or None if what is there is not one."""
    if len(raw) < HEADER_SIZE:
        return None
    view = memoryview(raw)[:HEADER_SIZE]
    if view[:4] != MAGIC or _CRC.unpack_from(view, HEADER_SIZE - 4)[0] != crc32c(view[: HEADER_SIZE - 4]):
        return None
    start, length, checksum, own_chunk, own_offset, durable_chunk, durable_offset, blob_id = _HEADER.unpack_from(view)
    if start[4] != VERSION or own_chunk != chunk or own_offset != offset:
        return None
    return Header(start[5], length, checksum, chunk, offset, (durable_chunk, durable_offset), blob_id)


def mended_header(raw: Buffer, chunk: int, offset: int) -> Header | None:
    """The header that stood at this place, if what is there differs from it in one byte beyond those that the place itself tells;
    None if it does not. Its body has to match it too before it is believed."""
    if len(raw) < HEADER_SIZE or not any(raw[:HEADER_SIZE]):
        return None
    tried = bytearray(MAGIC + bytes([VERSION, raw[5], 0, 0])) + bytearray(raw[8:16])
    tried += chunk.to_bytes(4, "big") + offset.to_bytes(4, "big") + bytes(raw[24:57]) + bytes(3) + bytes(raw[60:64])
    end = HEADER_SIZE - 4
    told = bytes(tried[end:])
    computed = _CRC.pack(crc32c(tried[:end]))
    if sum(one != other for one, other in zip(told, computed, strict=True)) <= 1:
        tried[end:] = computed
        return decode_header(tried, chunk, offset)
    for at in (5, *range(8, 16), *range(24, 57)):
        was = tried[at]
        for value in range(256):
            tried[at] = value
            if _CRC.pack(crc32c(tried[:end])) == told:
                return decode_header(tried, chunk, offset)
        tried[at] = was
    return None


def body_is_sound(header: Header, table: Buffer, body: Buffer) -> bool:
    """Whether a body, with its table if it has one, is what was written."""
    if len(body) != header.length:
        return False
    if header.length <= BLOCK_SIZE:
        return crc32c(body) == header.checksum
    return crc32c(table) == header.checksum and block_table(body) == table


def blocks_are_sound(table: Buffer, blocks: Buffer) -> bool:
    """Whether consecutive whole blocks (the last may be short) match their slice of the table."""
    return block_table(blocks) == table
