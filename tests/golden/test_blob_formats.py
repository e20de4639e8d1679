"""Stored bytes of the blob layer, pinned: data written by an older Penstock must stay readable.

A file here changes only together with the version in its format and code that still reads the old one.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from penstock.blob.blob_id import BlobId
from penstock.blob.channel import place_of
from penstock.blob.channel_history import ChannelHistory, TabletInfo
from penstock.blob.checkpoint import encode_checkpoint, end_frame, load_checkpoint
from penstock.blob.chunk_ends import END, WHOLE, ends_name, load_ends, pack_end
from penstock.blob.configuration import Configuration, Seat
from penstock.blob.identity import Identity
from penstock.blob.index import DiskIndex
from penstock.blob.meta import (
    BarrierItem,
    BlockItem,
    DiskState,
    DropItem,
    FlagsItem,
    HistoryItem,
    MetaItem,
    StateItem,
    UnkeepItem,
    decode_items,
    encode_items,
)
from penstock.blob.record import BLOCK_SIZE, HEADER_SIZE, RecordKind, body_is_sound, decode_header, encode, table_size
from penstock.blob.sisters import SisterMark, decode_marks, encode_marks
from penstock.blob.topology import Erasure
from penstock.testing.sim_disk import SimDisk, SimPlatter
from penstock.testing.sim_loop import run_simulation

FOLDER = Path(__file__).parent
BLOB = BlobId(0x0102030405060708, 9, 0x0A0B0C0D, 0x0E0F1011, 0x12131415, 0x0617181, 3)
SHORT_BODY = b"a short body"
LONG_BODY = bytes(range(256)) * (2 * BLOCK_SIZE // 256) + b"and a tail"
TABLET = BLOB.pack()[:8]
CHANNEL = BLOB.pack()[:9]
ITEMS: list[MetaItem] = [
    BlockItem(TABLET, 7, 0x1122334455667788),
    BarrierItem(CHANNEL, False, 8, 9, bytes.fromhex("0000000a0000000b"), 5),
    BarrierItem(CHANNEL, True, 8, 10, bytes.fromhex("0000000100000002"), 6),
    FlagsItem(BLOB.pack()[:21], 3),
    DropItem(BLOB.pack()),
    StateItem(DiskState.COMPLETE),
]
MARKS = [SisterMark(3, bytes(range(0x20, 0x30))), SisterMark(5, bytes(range(0x30, 0x40)), 0x01020304, (0x0506, 0x0708090A))]
IDENTITY = Identity(0x82000000, Erasure.MIRROR_3_DC, 2, 1, 0, bytes(range(0x40, 0x50)))


def _record(body: bytes) -> bytes:
    return b"".join(encode(RecordKind.PART, BLOB.pack(), body, (3, 0x1000), (3, 0x0F00)))


def _new_index() -> DiskIndex:
    return DiskIndex(1, 8, lambda holders: holders.bit_count() >= 6, lambda size: -(-size // 128) * 32)


def _known_index() -> DiskIndex:
    """Two channels: one with a handoff's two parts, a kept blob, a damaged one and flags alone; one with a single part."""
    index = _new_index()
    index.apply(StateItem(DiskState.SYNCED))
    index.apply(ITEMS[0])
    index.apply(ITEMS[1])
    index.apply(ITEMS[2])
    blobs = [BlobId(0x0102030405060708, 9, 20, step, 1, 100_000 + step, 1) for step in range(3)]
    for step, blob in enumerate(blobs):
        entry = index.add_part(blob.pack(), 4, 0x100 + step * 0x10000)
        if step == 2:
            index.mark_damaged(blob.pack(), entry)
    index.add_part(blobs[0].pack_part(6), 5, 0x40)
    index.apply(FlagsItem(blobs[1].pack()[:21], 1))
    index.apply(FlagsItem(BlobId(0x0102030405060708, 9, 20, 9, 1, 0).pack()[:21], 2))
    index.add_part(BlobId(0xFF, 0, 1, 2, 3, 4, 5).pack(), 6, 0x70)
    return index


def _checkpoint() -> bytes:
    index = _known_index()
    frames = list(encode_checkpoint(index, (6, 0x1234), index.state))
    return b"".join(frames) + end_frame(len(frames))


INFO = TabletInfo(7, (ChannelHistory([(0, 1), (5, 0x82000001)]), ChannelHistory([(0, 1)])))
HISTORY = HistoryItem((7).to_bytes(8, "big"), 1, bytes.fromhex("020002000000000000000100000005820000010001" + "0000000000000001"))
CONFIGURATION = Configuration(0x82000001, 3, Erasure.MIRROR_3, (Seat(1, "a"), Seat(2, "b"), Seat(3, "c")))

FORMATS: dict[str, Callable[[], bytes]] = {
    "blob_id": BLOB.pack,
    "record_short": lambda: _record(SHORT_BODY),
    # The body of a long record is not in the file: its checksums are.
    "record_long": lambda: _record(LONG_BODY)[: HEADER_SIZE + table_size(len(LONG_BODY))],
    "meta_items": lambda: encode_items(ITEMS),
    "checkpoint": _checkpoint,
    "identity": IDENTITY.pack,
    "history_item": lambda: encode_items([HISTORY]),
    "configuration": CONFIGURATION.pack,
    "sister_marks": lambda: encode_marks(MARKS),
    "chunk_ends": lambda: pack_end(END, 7, 0x01020304, 0x4111213141516171) + pack_end(WHOLE, 0, 0, 0),
}


def _pinned(name: str) -> bytes:
    return bytes.fromhex((FOLDER / f"{name}.hex").read_text(encoding="ascii"))


@pytest.mark.parametrize("name", FORMATS)
def test_the_bytes_written_are_the_pinned_ones(name: str) -> None:
    assert FORMATS[name]() == _pinned(name)


def test_a_blob_id_is_read_back() -> None:
    assert BlobId.unpack(_pinned("blob_id")) == BLOB


def test_a_short_record_is_read_back() -> None:
    raw = _pinned("record_short")
    header = decode_header(raw, 3, 0x1000)
    assert header is not None
    assert (header.kind, header.blob_id, header.durable) == (RecordKind.PART, BLOB.pack(), (3, 0x0F00))
    assert raw[HEADER_SIZE:] == SHORT_BODY
    assert body_is_sound(header, b"", SHORT_BODY)


def test_a_long_record_is_read_back() -> None:
    raw = _pinned("record_long")
    header = decode_header(raw, 3, 0x1000)
    assert header is not None
    assert header.length == len(LONG_BODY)
    assert body_is_sound(header, raw[HEADER_SIZE:], LONG_BODY)
    assert not body_is_sound(header, raw[HEADER_SIZE:], LONG_BODY[:-1] + b"!")


def test_meta_items_are_read_back() -> None:
    assert list(decode_items(_pinned("meta_items"))) == ITEMS


def test_a_keep_given_up_is_a_flags_item_without_flags() -> None:
    given_up = UnkeepItem(BLOB.pack()[:21])
    raw = encode_items([given_up])
    assert raw == b"\x03" + BLOB.pack()[:21] + b"\0"
    assert list(decode_items(raw)) == [given_up]


def test_a_checkpoint_is_read_back() -> None:
    index, expected = _new_index(), _known_index()
    assert load_checkpoint(_pinned("checkpoint"), index) == (6, 0x1234)
    assert index.state == DiskState.SYNCED
    assert index.blocks == expected.blocks
    assert list(index.channels) == list(expected.channels)
    for key, channel in index.channels.items():
        assert channel.blobs == expected.channels[key].blobs
        assert (channel.soft.held, channel.hard.held) == (expected.channels[key].soft.held, expected.channels[key].hard.held)
    assert {number: use.live for number, use in index.chunks.items()} == {n: use.live for n, use in expected.chunks.items()}
    assert index.parts == expected.parts == 5
    assert [place_of(entry).part for entry in index.channels[CHANNEL].entries(BlobId(0, 0, 20, 0, 1, 0).pack()[9:21])] == [1, 6]


def test_an_identity_is_read_back() -> None:
    assert Identity.unpack(_pinned("identity")) == IDENTITY


def test_marks_of_sisters_are_read_back() -> None:
    assert list(decode_marks(_pinned("sister_marks"))) == MARKS


def test_a_checkpoint_carries_marks_of_sisters() -> None:
    index, reloaded = _known_index(), _new_index()
    index.marks.update((mark.order, mark) for mark in MARKS)
    frames = list(encode_checkpoint(index, (6, 0x1234), index.state))
    assert len(frames) == len(list(encode_checkpoint(_known_index(), (6, 0x1234), index.state))) + 1
    load_checkpoint(b"".join(frames) + end_frame(len(frames)), reloaded)
    assert reloaded.marks == {mark.order: mark for mark in MARKS}


@pytest.mark.parametrize("boot", [0x4111213141516171, 1])
def test_the_ends_of_chunks_are_read_back(boot: int) -> None:
    async def run() -> tuple[int, dict[int, int]]:
        platter = SimPlatter()
        platter.write(ends_name(3), _pinned("chunk_ends"))
        disk = SimDisk(platter, Random(1))
        disk.boot = boot
        return await load_ends(disk, {ends_name(3): platter.size(ends_name(3))})

    assert run_simulation(run()) == (3, {7: 0x01020304} if boot != 1 else {})


def test_a_channel_history_is_read_back() -> None:
    assert list(decode_items(_pinned("history_item"))) == [HISTORY]
    assert (INFO.item(), TabletInfo.of_item(HISTORY)) == (HISTORY, INFO)


def test_a_configuration_is_read_back() -> None:
    assert Configuration.unpack(_pinned("configuration")) == CONFIGURATION
