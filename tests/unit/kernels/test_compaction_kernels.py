"""The loops of compaction, compiled and as plain Python: the same tables, maps and bytes from both."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock.kernels
from penstock.core.checksum import crc32c
from penstock.kernels import MalformedRecordsError, batch_list, compaction
from penstock.kernels.batch_list import AT, BASE_OFFSET, BATCH_FIELDS, COUNT, DROP, FATE, KEEP, KEPT, NEXT_OFFSET, SIFT
from penstock.testing.batches import KeyedRecord, keyed_records_of, make_keyed_batch

SECRET = (int.from_bytes(bytes(range(8)), "little"), int.from_bytes(bytes(range(8, 16)), "little"))


def _uncompiled(name: str) -> Any:
    source = Path(penstock.kernels.__file__).with_name(f"{name}.py")
    spec = importlib.util.spec_from_file_location(f"{name}_uncompiled", source)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.COMPILED is False
    return module


KERNELS: dict[str, tuple[Any, Any]] = {
    "as installed": (batch_list, compaction),
    "uncompiled": (_uncompiled("batch_list"), _uncompiled("compaction")),
}

Pairs = list[tuple[bytes | None, bytes | None]]
pairs = st.lists(st.tuples(st.none() | st.binary(max_size=20), st.none() | st.binary(max_size=30)), min_size=1, max_size=6)


@pytest.fixture(params=list(KERNELS))
def kernels(request: pytest.FixtureRequest) -> tuple[Any, Any]:
    return KERNELS[request.param]


def _run(batches: list[Pairs], first_offset: int = 0) -> bytes:
    stored = b""
    for each in batches:
        raw = make_keyed_batch(each, timestamps=[50, 20, 70])
        stored += first_offset.to_bytes(8, "big") + raw[8:]
        first_offset += len(each)
    return stored


def _table(kernel: ModuleType, run: bytes) -> Any:
    table = np.zeros((kernel.count_batches(run), BATCH_FIELDS), np.int64)
    kernel.list_batches(run, table)
    return table


def _keys(kernel: ModuleType, keys_max: int = 50) -> Any:
    return kernel.KeySlots(np.zeros((keys_max * 4 // 3 + 2, 3), np.uint64), SECRET, keys_max)


def _records(data: bytes) -> list[KeyedRecord]:
    """Records of batches whose checksums are not set."""
    found = bytearray(data)
    at = 0
    while at < len(found):
        end = at + 12 + int.from_bytes(found[at + 8 : at + 12], "big")
        found[at + 17 : at + 21] = crc32c(memoryview(found)[at + 21 : end]).to_bytes(4, "big")
        at = end
    return keyed_records_of(bytes(found))


def test_digests_are_siphash(kernels: tuple[Any, Any]) -> None:
    """The vectors that were published with it."""
    known = {0: "a3817f04ba25a8e66df67214c7550293", 1: "da87c1d86b99af44347659119b22fc45", 15: "5493e99933b0a8117e08ec0f97cfc3d9"}
    for size, expected in known.items():
        low, high = kernels[1].digest(bytes(range(size)), SECRET)
        assert (low.to_bytes(8, "little") + high.to_bytes(8, "little")).hex() == expected


@given(st.lists(pairs, min_size=1, max_size=5), st.integers(0, 25), st.integers(0, 25), st.integers(0, 25), st.integers(3, 20))
def test_both_forms_agree(batches: list[Pairs], from_offset: int, noted_to: int, ripe_to: int, keys_max: int) -> None:
    run = _run(batches)
    outcomes = []
    for lists, kernel in KERNELS.values():
        table = _table(lists, run)
        table[::3, FATE] = DROP
        table[1::3, FATE] = KEEP
        keys = _keys(kernel, keys_max)
        full_at = kernel.note_keys(run, table, from_offset, keys)
        keys.bound(noted_to, ripe_to)
        out = bytearray(len(run))
        size, tombstones = kernel.sift(run, table, keys, len(table) - 1, out)
        outcomes.append((full_at, keys.used, tombstones, table.tolist(), bytes(out[:size])))
    assert outcomes[0] == outcomes[1]


@given(st.lists(pairs, min_size=1, max_size=5))
def test_what_is_left_is_the_last_of_each_key(batches: list[Pairs]) -> None:
    run = _run(batches, 1000)
    table = _table(batch_list, run)
    keys = _keys(compaction)
    assert compaction.note_keys(run, table, 0, keys) == -1
    keys.bound(1 << 60, 0)
    out = bytearray(len(run))
    size, _ = compaction.sift(run, table, keys, -1, out)
    everything = _records(run)
    last = {record.key: record.offset for record in everything}
    expected = [record for record in everything if record.key is None or last[record.key] == record.offset]
    assert _records(bytes(out[:size])) == expected
    assert keys.used == len({record.key for record in everything if record.key is not None})


@given(st.binary(max_size=200))
def test_records_that_are_none_stay_as_they_are(data: bytes) -> None:
    header = make_keyed_batch([(b"k", b"v")])[:61]
    run = header[:8] + (49 + len(data)).to_bytes(4, "big") + header[12:57] + (3).to_bytes(4, "big") + data
    outcomes: list[object] = []
    for lists, kernel in KERNELS.values():
        table = _table(lists, run)
        keys = _keys(kernel)
        assert kernel.note_keys(run, table, 0, keys) == -1
        keys.bound(1 << 60, 0)
        out = bytearray(len(run))
        size, _ = kernel.sift(run, table, keys, -1, out)
        outcomes.append((keys.used, table.tolist(), bytes(out[:size])))
        assert out[:size] == run or table[0, FATE] == SIFT
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("delta", [-1, 2, 1 << 40])
def test_a_record_that_lies_about_its_offset_supersedes_nothing(kernels: tuple[Any, Any], delta: int) -> None:
    lists, kernel = kernels
    lying = bytearray(make_keyed_batch([(b"a", b"later"), (b"b", b"")]))
    record = bytes(_lying(delta))
    lying[61:] = record * 2
    lying[8:12] = (len(lying) - 12).to_bytes(4, "big")
    run = bytes(lying) + _run([[(b"a", b"1")]], 2)
    table = _table(lists, run)
    keys = _keys(kernel)
    assert kernel.note_keys(run, table, 0, keys) == -1
    keys.bound(1 << 60, 1 << 60)
    out = bytearray(len(run))
    size, _ = kernel.sift(run, table, keys, -1, out)
    assert bytes(out[:size]) == run


def _lying(delta: int) -> bytes:
    """A record of key `a` and no value with this offset delta."""
    body = b"\0\0" + _varint(delta) + b"\2a\1\0"
    return _varint(len(body)) + body


def _varint(number: int) -> bytes:
    zigzag = number << 1 if number >= 0 else (-number << 1) - 1
    out = bytearray()
    while zigzag > 0x7F:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)


def test_a_full_map_says_at_which_record_it_was_full(kernels: tuple[Any, Any]) -> None:
    lists, kernel = kernels
    run = _run([[(b"a", b"1"), (b"b", b"2")], [(b"a", b"3"), (b"c", b"4"), (b"d", b"5")]], 10)
    keys = _keys(kernel, 3)
    assert kernel.note_keys(run, _table(lists, run), 0, keys) == 14
    assert keys.used == 3


def test_a_table_says_what_the_headers_say(kernels: tuple[Any, Any]) -> None:
    run = _run([[(b"a", b"1")], [(b"b", b"2"), (b"c", None)]], 1 << 40)
    table = _table(kernels[0], run)
    assert table[:, (AT, BASE_OFFSET, NEXT_OFFSET, COUNT, FATE, KEPT)].tolist() == [
        [0, 1 << 40, (1 << 40) + 1, 1, SIFT, 0],
        [table[0, 1], (1 << 40) + 1, (1 << 40) + 3, 2, SIFT, 0],
    ]


def test_a_run_that_ends_within_a_batch_is_malformed(kernels: tuple[Any, Any]) -> None:
    run = _run([[(b"a", b"1")], [(b"b", b"2")]])
    for end in range(1, len(run)):
        if end != len(run) // 2:
            with pytest.raises(MalformedRecordsError):
                kernels[0].count_batches(run[:end])
