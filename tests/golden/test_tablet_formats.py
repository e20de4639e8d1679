"""Stored bytes of tablets and partitions, pinned: data written by an older Penstock must stay readable.

A file here changes only together with the version in its format and code that still reads the old one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from penstock.blob import BlobId
from penstock.queue import SourceState, SourceWrite, check_batch, keys
from penstock.queue.append_note import NamedSource, pack_note, unpack_note
from penstock.queue.clean_state import CleanPass, CleanState
from penstock.queue.keys import BODY, HEAD, DataKey, Description, Meta
from penstock.queue.origins import Origins
from penstock.queue.partition_append import PartitionAppend
from penstock.queue.piece import Marks
from penstock.queue.sources import RecentBatch
from penstock.tablet.key_index import BlobRef, Chain, Change
from penstock.tablet.log_format import Append, LogEntry, SnapshotMark, decode_entry, decode_page, encode_entry, encode_page
from penstock.testing.batches import make_batch

FOLDER = Path(__file__).parent
BLOB = BlobId(0x0102030405060708, 1, 0x0A0B0C0D, 0x0E0F1011, 0x12131415, 0x0617181)
PAGE = BlobId(0x0102030405060708, 2, 7, 8, 0, 0x1234)
CHANGES: tuple[Change, ...] = (
    (b"gone", None),
    (b"small", b"a small value"),
    (b"large", Chain(b"its head", (BlobRef(BLOB, 0x21, 0x22), b"bytes kept in the log", BlobRef(BLOB, 0, 0x0617181)))),
)
ENTRY = LogEntry((3, 0x44), (5, 6), (7, 8), SnapshotMark((9, 10), (11, 12), (PAGE, PAGE._replace(cookie=1))), CHANGES)
ABORTED_RUN = LogEntry((3, 0x44), range(0x01020304, 0x05060708), changes=CHANGES)
APPENDS = LogEntry(appends=(Append(0x01020304, b"its note", b"batches"), Append(5, b"", b"")))
EVERYTHING = ENTRY._replace(appends=APPENDS.appends)
NAMED: list[NamedSource] = [
    (0, None),
    (2, SourceWrite(b"rising", 0x0102030405060708, 9)),
    (0x01020304, SourceWrite(b"contiguous", -1, -1, contiguous=True)),
]
BODY_KEY = DataKey(0x01020304, 0x05060708090A0B0C, 0x0D0E0F10, BODY)
HEAD_KEY = DataKey(1, 2, 3, HEAD)
DESCRIPTION = Description(0x01020304, 0x05060708, -1, 0x090A0B0C0D0E0F10)
COUNTED = DESCRIPTION._replace(hidden=0x11121314)
META = Meta(0x0102030405060708, 0x1112131415161718)
STATE = SourceState(
    7,
    (
        RecentBatch(1, 100, 2),
        RecentBatch(1000, 110, 200),
        RecentBatch(70_000, 5000, 1),
        RecentBatch(0x7FFFFFFF, 5001, 3),
        RecentBatch(4, 0x0102030405060708, 5),  # a producer's numbers have wrapped
    ),
)
CLEAN = CleanState(0x0102030405060708, 0x1112131415161718, (CleanPass(0x2122232425262728, 0x3132333435363738), CleanPass(9, 10)))
ORIGINS = Origins(0x0102030405060708, 0x1112131415161718)
STATE_OF_ONE = SourceState(-1, (RecentBatch(9, 10, 11),))


def _marks() -> Marks:
    marks = Marks()
    marks.add(0x0102030405060708, 0, 0x1112131415161718)
    marks.add(0x0102030405060709, 0x00ABCDEF, -1)
    return marks


def _batch() -> bytes:
    raw = make_batch([b"one", b"two"], key=b"k", timestamp=0x0102030405, producer_id=6, producer_epoch=7, base_sequence=8)
    added = PartitionAppend(0x0910111213141516, 0x17)
    added.add(check_batch(raw, 1000), None, None)
    return added.data()


KEYS = {
    b"m": keys.prefix(b"m", 0x01020304),
    b"s": keys.prefix(b"s", 0x01020304) + b"source",
    b"t": keys.transaction_key(0x01020304, 0x05060708090A0B0C),
    b"a": keys.aborted_key(0x01020304, 0x05060708090A0B0C, 0x0D0E0F1011121314),
    b"c": keys.prefix(b"c", 0x01020304) + b"consumer",
    b"e": keys.epoch_key(0x01020304, 0x05060708),
    b"k": keys.prefix(b"k", 0x01020304),
    b"g": keys.prefix(b"g", 0x01020304),
    b"l": keys.prefix(b"l", 0x01020304),
    b"w": keys.staged_key(0x01020304, 0x05060708),
}

FORMATS: dict[str, Callable[[], bytes]] = {
    "kv_log_entry": lambda: bytes(encode_entry(ENTRY)),
    "kv_log_entry_empty": lambda: bytes(encode_entry(LogEntry())),
    "kv_log_entry_appends": lambda: bytes(encode_entry(APPENDS)),
    "kv_log_entry_everything": lambda: bytes(encode_entry(EVERYTHING)),
    "kv_log_entry_aborted_run": lambda: bytes(encode_entry(ABORTED_RUN)),
    "queue_append_note": lambda: pack_note(0x0102030405060708, NAMED),
    "kv_snapshot_page": lambda: encode_page(CHANGES),
    "queue_body_key": BODY_KEY.pack,
    "queue_head_key": HEAD_KEY.pack,
    "queue_description": DESCRIPTION.pack,
    "queue_description_counted": COUNTED.pack,
    "queue_meta": META.pack,
    "queue_clean_state": CLEAN.pack,
    "queue_origins": ORIGINS.pack,
    "queue_marks": lambda: _marks().pack(),
    "queue_source": STATE.pack,
    "queue_source_of_one": STATE_OF_ONE.pack,
    "queue_offset": lambda: keys.pack_offset(0x0102030405060708),
    "queue_batch": _batch,
    **{f"queue_key_{kind.decode()}": partial(bytes, key) for kind, key in KEYS.items()},
}


def _pinned(name: str) -> bytes:
    return bytes.fromhex((FOLDER / f"{name}.hex").read_text(encoding="ascii"))


@pytest.mark.parametrize("name", FORMATS)
def test_the_bytes_written_are_the_pinned_ones(name: str) -> None:
    assert FORMATS[name]() == _pinned(name)


def test_a_log_entry_and_a_page_are_read_back() -> None:
    assert decode_entry(_pinned("kv_log_entry"), (1, 1)) == ENTRY
    assert decode_entry(_pinned("kv_log_entry_empty"), (1, 1)) == LogEntry()
    assert decode_entry(_pinned("kv_log_entry_appends"), (1, 1)) == APPENDS
    assert decode_entry(_pinned("kv_log_entry_everything"), (1, 1)) == EVERYTHING
    assert decode_entry(_pinned("kv_log_entry_aborted_run"), (1, 1)) == ABORTED_RUN
    assert decode_page(_pinned("kv_snapshot_page"), "page") == list(CHANGES)


def test_keys_are_read_back() -> None:
    assert DataKey.unpack(_pinned("queue_body_key")) == BODY_KEY
    assert DataKey.unpack(_pinned("queue_head_key")) == HEAD_KEY
    for kind in "mstacekglw":
        assert keys.partition_of(_pinned(f"queue_key_{kind}")) == 0x01020304
    assert keys.producer_of(_pinned("queue_key_t")) == 0x05060708090A0B0C
    assert keys.producer_of(_pinned("queue_key_a")) == 0x0D0E0F1011121314
    assert keys.last_offset_of(_pinned("queue_key_a")) == 0x05060708090A0B0C
    assert keys.epoch_of(_pinned("queue_key_e")) == 0x05060708


def test_values_are_read_back() -> None:
    assert Description.unpack(_pinned("queue_description")) == DESCRIPTION
    assert Description.unpack(_pinned("queue_description_counted")) == COUNTED
    assert Meta.unpack(_pinned("queue_meta")) == META
    assert unpack_note(_pinned("queue_append_note")) == (0x0102030405060708, dict(NAMED))
    assert SourceState.unpack(_pinned("queue_source")) == STATE
    assert CleanState.unpack(_pinned("queue_clean_state")) == CLEAN
    assert Origins.unpack(_pinned("queue_origins")) == ORIGINS
    assert SourceState.unpack(_pinned("queue_source_of_one")) == STATE_OF_ONE
    assert keys.unpack_offset(_pinned("queue_offset")) == 0x0102030405060708
    marks = Marks.unpack(_pinned("queue_marks"))
    assert (marks.offsets, marks.positions, marks.latest) == (_marks().offsets, _marks().positions, _marks().latest)


def test_the_order_of_data_keys_is_the_order_of_offsets() -> None:
    ordered = [DataKey(1, 255, 1, HEAD), DataKey(1, 256, 1, BODY), DataKey(1, 1 << 40, 1, BODY), DataKey(2, 0, 9, BODY)]
    assert sorted(key.pack() for key in ordered) == [key.pack() for key in ordered]


def test_the_keys_of_a_partition_are_one_range() -> None:
    own = keys.prefix(b"s", 0x0102FFFF)
    assert own <= own + b"anything" < keys.past(own) == keys.prefix(b"s", 0x01030000)
    assert not own <= keys.prefix(b"s", 0x01030000) < keys.past(own)
