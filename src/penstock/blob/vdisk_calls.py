"""The calls of a VDisk as bytes, for a VDisk on another node: a method number, a request and a reply each.

Calls that carry parts have a head of fixed form and then the bytes as they are (integers big-endian):

    PUT, PUT_REPLICA   generation 4 | from reserve 1 | blob id with part 25 | body
    PUT_SUMMED         generation 4 | from reserve 1 | blob id with part 25 | size of the table 4 | table: crc32c of each 64 KiB
                       of the body | crc32c of all this 4 | body; its frames have no checksum of the body
    PUT_ALL            generation 4 | from reserve 1 | count 4 | count times (blob id with part 25 | size 4) | bodies
    the reply to GET   size of the head 4 | head: status, (part, size) of each part, reason, damaged | parts

All other requests are MessagePack arrays of the arguments in the order of `DiskLink`, all other replies, and that head, arrays of
the fields of the reply; metadata items are in their stored form (`meta.py`), statuses by name. What changes here gets a new
method number.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum
from struct import Struct
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from penstock.blob.configuration import Configuration, ConfigurationReply
from penstock.blob.disk import Buffer
from penstock.blob.link import BlocksReply, ChannelsReply, CollectRequest, DiskReply, Page, PartsReply, PullReply, TabletReply
from penstock.blob.meta import BlockItem, DiskState, HistoryItem, decode_items, encode_items
from penstock.blob.record import BLOCK_SIZE, block_table, blocks_are_sound
from penstock.blob.sisters import SisterMark
from penstock.blob.status import Status
from penstock.blob.vector import Content, SummedBuffer, Vector
from penstock.core.checksum import crc32c
from penstock.core.errors import CorruptionError

PARTS_MAX: Final = 100_000  # in one PUT_ALL

_PUT: Final = Struct(">IB25s")
_PUT_SUMMED: Final = Struct(">IB25sI")
_PUT_ALL: Final = Struct(">IBI")
_PART: Final = Struct(">25sI")
_SIZE: Final = Struct(">I")
_CRC: Final = Struct(">I")


class Method(IntEnum):
    """What can be asked of a VDisk."""

    PUT = 1
    PUT_ALL = 2
    PUT_REPLICA = 3
    GET = 4
    COLLECT = 6
    LISTING = 8
    CHANNELS = 9
    PULL = 10
    DROP = 11
    CONFIGURE = 12
    FORM = 13
    NOTE_DISORDER = 14
    BLOCKED_GENERATIONS = 15
    BLOCK_ALL = 16
    LOOK_UP_ALL = 17
    PUT_SUMMED = 18


class PutCall(NamedTuple):
    """The request of PUT or PUT_REPLICA."""

    generation: int
    from_reserve: bool
    blob_id: bytes
    body: Content


class PutAllCall(NamedTuple):
    """The request of PUT_ALL."""

    generation: int
    from_reserve: bool
    parts: list[tuple[bytes, Buffer]]


class _PartsHead(NamedTuple):
    status: Status
    sizes: tuple[tuple[int, int], ...]
    reason: str
    damaged: bool


class _PullHead(NamedTuple):
    status: Status
    incarnation: int
    position: int
    items: bytes
    state: DiskState
    known: SisterMark | None
    disorders: int


T = TypeVar("T")

pack: Final = msgspec.msgpack.Encoder().encode
REQUESTS: Final[dict[Method, msgspec.msgpack.Decoder[Any]]] = {
    Method.GET: msgspec.msgpack.Decoder(tuple[int, bytes, int, int]),
    Method.COLLECT: msgspec.msgpack.Decoder(tuple[int, CollectRequest]),
    Method.LISTING: msgspec.msgpack.Decoder(tuple[int, bytes, bytes, bytes | None, bool, int]),
    Method.CHANNELS: msgspec.msgpack.Decoder(tuple[int]),
    Method.PULL: msgspec.msgpack.Decoder(tuple[int, int, int, int, SisterMark | None]),
    Method.DROP: msgspec.msgpack.Decoder(tuple[int, bytes, tuple[int, int]]),
    Method.CONFIGURE: msgspec.msgpack.Decoder(tuple[Configuration]),
    Method.FORM: msgspec.msgpack.Decoder(tuple[int]),
    Method.NOTE_DISORDER: msgspec.msgpack.Decoder(tuple[int]),
    Method.BLOCKED_GENERATIONS: msgspec.msgpack.Decoder(tuple[int, bytes]),
    Method.BLOCK_ALL: msgspec.msgpack.Decoder(tuple[int, list[tuple[BlockItem, HistoryItem | None]]]),
    Method.LOOK_UP_ALL: msgspec.msgpack.Decoder(tuple[int, list[bytes]]),
}
DISK_REPLY: Final = msgspec.msgpack.Decoder(DiskReply)
DISK_REPLIES: Final = msgspec.msgpack.Decoder(list[DiskReply])
PAGE: Final = msgspec.msgpack.Decoder(Page)
CHANNELS_REPLY: Final = msgspec.msgpack.Decoder(ChannelsReply)
CONFIGURATION_REPLY: Final = msgspec.msgpack.Decoder(ConfigurationReply)
TABLET_REPLIES: Final = msgspec.msgpack.Decoder(list[TabletReply])
BLOCKS_REPLY: Final = msgspec.msgpack.Decoder(BlocksReply)
_PARTS_HEAD: Final = msgspec.msgpack.Decoder(_PartsHead)
_PULL_HEAD: Final = msgspec.msgpack.Decoder(_PullHead)


def unpack(decoder: msgspec.msgpack.Decoder[T], raw: Buffer) -> T:
    """What was packed; raises CorruptionError for bytes that are something else."""
    try:
        return decoder.decode(raw)
    except (msgspec.MsgspecError, ValueError) as error:
        raise CorruptionError(f"{len(raw)} bytes from another node make no sense: {error}") from error


def pack_put(generation: int, blob_id: bytes, body: Content, *, from_reserve: bool) -> list[Buffer]:
    """The request of PUT or PUT_REPLICA."""
    return [_PUT.pack(generation, from_reserve, blob_id), *_buffers(body)]


def unpack_put(raw: Buffer) -> PutCall:
    """See `pack_put`."""
    try:
        generation, from_reserve, blob_id = _PUT.unpack_from(raw)
    except struct.error as error:
        raise CorruptionError(f"a put of {len(raw)} bytes is too short") from error
    return PutCall(generation, bool(from_reserve), blob_id, memoryview(raw)[_PUT.size :])


def pack_put_summed(generation: int, blob_id: bytes, body: SummedBuffer, *, from_reserve: bool) -> list[Buffer]:
    """The request of PUT_SUMMED."""
    table = block_table(body)
    head = _PUT_SUMMED.pack(generation, from_reserve, blob_id, len(table)) + table
    return [head + _CRC.pack(crc32c(head)), *body.buffers]


def unpack_put_summed(raw: Buffer) -> PutCall:
    """See `pack_put_summed`. Raises CorruptionError also for bytes that are not those of the table."""
    view = memoryview(raw)
    try:
        generation, from_reserve, blob_id, size = _PUT_SUMMED.unpack_from(view)
        end = _PUT_SUMMED.size + size
        (crc,) = _CRC.unpack_from(view, end)
    except struct.error as error:
        raise CorruptionError(f"a put of {len(raw)} bytes is too short") from error
    table, body = view[_PUT_SUMMED.size : end], view[end + _CRC.size :]
    if crc32c(view[:end]) != crc or not blocks_are_sound(table, body):
        raise CorruptionError(f"the checksums of a put of {len(raw)} bytes are wrong: it was damaged on its way")
    return PutCall(generation, bool(from_reserve), blob_id, SummedBuffer(body, BLOCK_SIZE, bytes(table)))


def pack_put_all(generation: int, parts: Sequence[tuple[bytes, Content]], *, from_reserve: bool) -> list[Buffer]:
    """The request of PUT_ALL."""
    head = [_PUT_ALL.pack(generation, from_reserve, len(parts))]
    head += [_PART.pack(blob_id, len(body)) for blob_id, body in parts]
    return [b"".join(head), *(buffer for _, body in parts for buffer in _buffers(body))]


def unpack_put_all(raw: Buffer) -> PutAllCall:
    """See `pack_put_all`."""
    view = memoryview(raw)
    try:
        generation, from_reserve, count = _PUT_ALL.unpack_from(view)
        at = _PUT_ALL.size + count * _PART.size
        heads = list(_PART.iter_unpack(view[_PUT_ALL.size : at])) if count <= PARTS_MAX else []
    except struct.error as error:
        raise CorruptionError(f"a put of several parts, of {len(raw)} bytes, is too short") from error
    if len(heads) != count or at + sum(size for _, size in heads) != len(view):
        raise CorruptionError(f"a put of {count} parts does not have the {len(raw)} bytes that it came with")
    parts: list[tuple[bytes, Buffer]] = []
    for blob_id, size in heads:
        parts.append((blob_id, view[at : at + size]))
        at += size
    return PutAllCall(generation, bool(from_reserve), parts)


def pack_parts(reply: PartsReply) -> list[Buffer]:
    """The reply to GET."""
    sizes = tuple((part, len(data)) for part, data in reply.parts)
    head = pack(_PartsHead(reply.status, sizes, reply.reason, reply.damaged))
    return [_SIZE.pack(len(head)) + head, *(data for _, data in reply.parts)]


def unpack_parts(raw: Buffer) -> PartsReply:
    """See `pack_parts`."""
    view = memoryview(raw)
    if len(view) < _SIZE.size:
        raise CorruptionError(f"{len(raw)} bytes are no reply to a get")
    at = _SIZE.size + _SIZE.unpack_from(view)[0]
    head = unpack(_PARTS_HEAD, view[_SIZE.size : at])
    if len(head.sizes) == 1 and at + head.sizes[0][1] == len(view):
        return PartsReply(head.status, ((head.sizes[0][0], view[at:]),), head.reason, head.damaged)
    if at + sum(size for _, size in head.sizes) != len(view):
        raise CorruptionError(f"the parts of a reply do not have the {len(raw)} bytes that it came with")
    parts: list[tuple[int, Buffer]] = []
    for part, size in head.sizes:
        parts.append((part, view[at : at + size]))
        at += size
    return PartsReply(head.status, tuple(parts), head.reason, head.damaged)


def pack_pull(reply: PullReply) -> list[Buffer]:
    """The reply to PULL."""
    items = encode_items(reply.items)
    head = _PullHead(reply.status, reply.incarnation, reply.position, items, reply.state, reply.known, reply.disorders)
    return [pack(head)]


def unpack_pull(raw: Buffer) -> PullReply:
    """See `pack_pull`."""
    head = unpack(_PULL_HEAD, raw)
    try:
        items = tuple(decode_items(head.items))
    except (struct.error, ValueError) as error:
        raise CorruptionError(f"metadata from another node makes no sense: {error}") from error
    return PullReply(head.status, head.incarnation, head.position, items, head.state, head.known, head.disorders)


def _buffers(content: Content) -> Sequence[Buffer]:
    return content.buffers if isinstance(content, Vector) else (content,)
