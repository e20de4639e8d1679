"""A VDisk's index on disk, so that opening it need not read the log from its beginning.

A checkpoint is a file of frames (integers big-endian):

     0      4    5      8        12       16
     +------+----+------+--------+--------+------+
     |magic |kind|zero  |length  |crc32c  | body |
     |"PENc"|    |      |of body |of rest |      |
     +------+----+------+--------+--------+------+

     HEAD     version 2 | chunk 4 | offset 4          where in the log to go on reading
     META     metadata items (see meta.py)
     SISTERS  marks of sister disks (see sisters.py), if there are any
     ENTRIES  channel key 9 | zero 3 | count 4 | count keys of 12 | count rows of 13
              row: chunk 4 | offset 4 | size and part 4 | flags 1
     END      number of frames before it 4

It is written while the disk serves, a slice at a time, so slices may be newer than the place in HEAD; replaying the log from
there sets that right, since every change merges. A file without its END frame does not count.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

import numpy as np

from penstock.blob.channel import CHUNK_SHIFT, DAMAGED, OFFSET_SHIFT, SIZE_PART_SHIFT, Channel, size_part_of
from penstock.blob.index import DiskIndex
from penstock.blob.journal import Position
from penstock.blob.meta import DiskState, StateItem, decode_items, encode_items
from penstock.blob.record import BLOCK_SIZE, HEADER_SIZE
from penstock.blob.sisters import decode_marks, encode_marks
from penstock.core.checksum import crc32c
from penstock.core.errors import ConfigError, CorruptionError

MAGIC = b"PENc"
VERSION = 1
SUFFIX = ".checkpoint"
SLICE_BLOBS = 8192
KEY_SIZE = 12

_FRAME = Struct(">4sB3xI")
_CRC = Struct(">I")
_HEAD = Struct(">HII")
_ENTRIES = Struct(">9s3xI")
_ROW = Struct(">IIIB")
_END = Struct(">I")
_ROW_TYPE = np.dtype([("chunk", ">u4"), ("offset", ">u4"), ("size_part", ">u4"), ("flags", "u1")])
_U32 = (1 << 32) - 1

HEAD, META, ENTRIES, END, SISTERS = 1, 2, 3, 4, 5


def checkpoint_name(number: int) -> str:
    """The file of a checkpoint."""
    return f"{number:08d}{SUFFIX}"


def encode_checkpoint(index: DiskIndex, position: Position, state: DiskState) -> Iterator[bytes]:
    """The frames of a checkpoint but the last, made as they are asked for; the disk may change in between. `state` is what the
    disk may be taken for when it is read."""
    yield _frame(HEAD, _HEAD.pack(VERSION, *position))
    yield _frame(META, encode_items((StateItem(state), *index.meta_items())))
    for channel_key, channel in list(index.channels.items()):
        keys = list(channel.keys())
        for begin in range(0, len(keys), SLICE_BLOBS):
            yield _frame(ENTRIES, _encode_slice(channel_key, channel, keys[begin : begin + SLICE_BLOBS]))
    # Last, since what a slice has forgotten was forgotten because the sisters had said that they know it.
    if index.marks:
        yield _frame(SISTERS, encode_marks(index.marks.values()))


def end_frame(frames: int) -> bytes:
    """The frame that makes a checkpoint count."""
    return _frame(END, _END.pack(frames))


def load_checkpoint(raw: bytes, index: DiskIndex) -> Position:
    """Fill an empty index; the place in the log from which to go on. CorruptionError if it is not whole."""
    frames = list(_frames(raw))
    if not frames or frames[-1][0] != END or _END.unpack(frames[-1][1])[0] != len(frames) - 1:
        raise CorruptionError("the checkpoint has no end frame: it was not finished")
    version, chunk, offset = _HEAD.unpack(frames[0][1])
    if version != VERSION:
        raise ConfigError(f"the checkpoint has format {version}, this version of Penstock reads format {VERSION}; upgrade it")
    for kind, body in frames[1:-1]:
        if kind == META:
            for item in decode_items(body):
                index.apply(item)
        elif kind == SISTERS:
            index.marks.update((mark.order, mark) for mark in decode_marks(body))
        elif kind == ENTRIES:
            _load_slice(body, index)
    return chunk, offset


def _frame(kind: int, body: bytes) -> bytes:
    head = _FRAME.pack(MAGIC, kind, len(body))
    return head + _CRC.pack(crc32c(body, crc32c(head))) + body


def _frames(raw: bytes) -> Iterator[tuple[int, memoryview]]:
    view = memoryview(raw)
    at = 0
    while at + _FRAME.size + _CRC.size <= len(view):
        head = view[at : at + _FRAME.size]
        magic, kind, length = _FRAME.unpack(head)
        begin = at + _FRAME.size + _CRC.size
        body = view[begin : begin + length]
        checksum = _CRC.unpack_from(view, at + _FRAME.size)[0]
        if magic != MAGIC or len(body) != length or crc32c(body, crc32c(head)) != checksum:
            raise CorruptionError(f"the checkpoint is damaged at byte {at}")
        yield kind, body
        if kind == END:
            return  # what may follow is room that was set aside
        at = begin + length


def _encode_slice(channel_key: bytes, channel: Channel, keys: list[bytes]) -> bytes:
    rows: list[bytes] = []
    row_keys: list[bytes] = []
    pack = _ROW.pack
    for key in keys:
        for entry in channel.entries(key):
            low = entry & (DAMAGED | 3)
            rows.append(pack(entry >> CHUNK_SHIFT, entry >> OFFSET_SHIFT & _U32, entry >> SIZE_PART_SHIFT & _U32, low))
            row_keys.append(key)
    return b"".join((_ENTRIES.pack(channel_key, len(rows)), *row_keys, *rows))


def _load_slice(body: memoryview, index: DiskIndex) -> None:
    channel_key, count = _ENTRIES.unpack_from(body)
    begin = _ENTRIES.size
    end = begin + count * KEY_SIZE
    raw_keys = bytes(body[begin:end])
    keys = [raw_keys[at : at + KEY_SIZE] for at in range(0, len(raw_keys), KEY_SIZE)]
    rows = np.frombuffer(body[end:], dtype=_ROW_TYPE, count=count)
    columns = (rows[name].tolist() for name in ("chunk", "offset", "size_part", "flags"))
    entries = [
        chunk << CHUNK_SHIFT | offset << OFFSET_SHIFT | size_part << SIZE_PART_SHIFT | flags
        for chunk, offset, size_part, flags in zip(*columns, strict=True)
    ]
    index.channel(channel_key).load(keys, entries)
    _account(rows, index)
    for row in np.flatnonzero(rows["flags"] & DAMAGED).tolist():
        index.damaged.add(channel_key + keys[row] + size_part_of(entries[row]).to_bytes(4, "big"))


def _account(rows: np.ndarray[tuple[int], np.dtype[np.void]], index: DiskIndex) -> None:
    """Add the loaded parts to the accounts of their chunks: what DiskIndex does for one, for all at once."""
    size_part = rows["size_part"].astype(np.int64)
    stored = (size_part & 0xF) != 0
    chunks = rows["chunk"][stored].astype(np.int64)
    if not len(chunks):
        return
    sizes, which = np.unique(size_part[stored] >> 4, return_inverse=True)
    lengths = np.array([index.part_size(int(size)) for size in sizes], dtype=np.int64)
    tables = np.where(lengths > BLOCK_SIZE, (lengths + BLOCK_SIZE - 1) // BLOCK_SIZE * 4, 0)
    records = (lengths + tables + HEADER_SIZE)[which]
    numbers, place = np.unique(chunks, return_inverse=True)
    live = np.bincount(place, weights=records)
    extents = np.zeros(len(numbers), dtype=np.int64)
    np.maximum.at(extents, place, rows["offset"][stored].astype(np.int64) + records)
    for number, amount, extent in zip(numbers.tolist(), live.tolist(), extents.tolist(), strict=True):
        use = index.chunk_use(number)
        use.live += int(amount)
        use.extent = max(use.extent, extent)
    index.parts += len(chunks)
