"""The stored form of a KV tablet's log and snapshots: what goes in comes out, and what is not it is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.blob import BlobId
from penstock.core.errors import ConfigError, CorruptionError
from penstock.tablet.key_index import BlobRef, Chain, Change
from penstock.tablet.log_format import Append, LogEntry, SnapshotMark, decode_entry, decode_page, encode_entry, encode_page

numbers = st.integers(0, (1 << 32) - 1)
places = st.tuples(numbers, numbers)
blobs = st.builds(
    BlobId, st.integers(0, (1 << 64) - 1), st.integers(0, 255), numbers, numbers, numbers, st.integers(0, 1 << 20), st.just(0)
)
pieces = st.one_of(st.binary(max_size=20), st.builds(BlobRef, blobs, numbers, numbers))
values = st.one_of(
    st.none(),
    st.binary(max_size=30),
    st.builds(Chain, st.binary(max_size=10), st.lists(pieces, max_size=4).map(tuple)),
)
changes = st.lists(st.tuples(st.binary(min_size=1, max_size=40), values), max_size=5).map(tuple)
marks = st.builds(SnapshotMark, places, places, st.lists(blobs, max_size=3).map(tuple))
entries = st.builds(
    LogEntry,
    st.one_of(st.none(), places),
    st.lists(numbers, max_size=3).map(tuple),
    st.one_of(st.none(), places),
    st.one_of(st.none(), marks),
    changes,
    st.lists(st.builds(Append, numbers, st.binary(max_size=20), st.binary(max_size=30)), max_size=3).map(tuple),
)

CHANGES: tuple[Change, ...] = (
    (b"gone", None),
    (b"small", b"value"),
    (b"large", Chain(b"h", (b"x", BlobRef(BlobId(*[1] * 6), 2, 3)))),
)
ENTRY = LogEntry(
    (1, 2), (3, 4), (5, 6), SnapshotMark((7, 8), (9, 10), (BlobId(*[11] * 6),)), CHANGES, (Append(1, b"note", b"data"),)
)


@given(entries)
def test_an_entry_is_read_back(entry: LogEntry) -> None:
    assert decode_entry(encode_entry(entry), (1, 1)) == entry


@pytest.mark.parametrize("appends", [(), (Append(1, b"note", b"data"),)])
def test_many_aborted_steps_take_no_more_room_than_a_few(appends: tuple[Append, ...]) -> None:
    few = encode_entry(LogEntry((1, 2), range(7, 8), (5, 6), None, CHANGES, appends))
    entry = LogEntry((1, 2), range(7, 4_000_000_000), (5, 6), None, CHANGES, appends)
    assert decode_entry(encode_entry(entry), (1, 1)) == entry
    assert len(encode_entry(entry)) == len(few)


def test_up_to_a_thousand_aborted_steps_are_listed_as_older_versions_read_them() -> None:
    assert encode_entry(LogEntry(aborted=range(5, 1005))) == encode_entry(LogEntry(aborted=tuple(range(5, 1005))))


@given(changes)
def test_a_page_is_read_back(page: tuple[Change, ...]) -> None:
    assert decode_page(encode_page(page), "page") == list(page)


def test_a_key_of_the_greatest_length_is_read_back() -> None:
    entry = LogEntry(changes=((b"k" * 4000, b""),))
    assert decode_entry(encode_entry(entry), (1, 1)) == entry


@pytest.mark.parametrize("at", range(len(encode_entry(ENTRY))))
def test_a_flipped_bit_anywhere_is_found(at: int) -> None:
    raw = bytearray(encode_entry(ENTRY))
    raw[at] ^= 1
    with pytest.raises((CorruptionError, ConfigError)):
        decode_entry(raw, (1, 1))


@pytest.mark.parametrize("length", [0, 3, 11, 12, 20, -1])
def test_a_cut_entry_is_found(length: int) -> None:
    with pytest.raises(CorruptionError):
        decode_entry(encode_entry(ENTRY)[:length], (1, 1))


def test_an_entry_is_not_a_page_and_a_page_no_entry() -> None:
    with pytest.raises(CorruptionError, match="PENs"):
        decode_page(encode_entry(ENTRY), "page")
    with pytest.raises(CorruptionError, match=r"log entry \(3, 4\)"):
        decode_entry(encode_page(CHANGES), (3, 4))


def test_a_newer_format_asks_for_an_upgrade() -> None:
    entry, page = bytes(encode_entry(ENTRY)), encode_page(CHANGES)
    with pytest.raises(ConfigError, match=r"format 4, .* upgrade Penstock"):
        decode_entry(entry[:4] + b"\0\4" + entry[6:], (1, 1))
    with pytest.raises(ConfigError, match=r"format 2, .* upgrade Penstock"):
        decode_page(page[:4] + b"\0\2" + page[6:], "page")
