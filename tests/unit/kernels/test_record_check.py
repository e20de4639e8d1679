"""What is refused of the records of a batch: all that readers would stumble over, whatever it is compressed with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.record_compression import GZIP, LZ4, SNAPPY, XERIAL_MAGIC, ZSTD, compress_like, decompress
from penstock.core.record_format import framed, packed_record
from penstock.core.varint import varint
from penstock.kernels import MalformedRecordsError, record_scan
from penstock.queue import InvalidBatchError, KeylessRecordError, TimeRange, check_batch, check_plain_records, plain_records_of
from penstock.testing.batches import make_keyed_batch
from tests.kernel_forms import uncompiled

Check = Callable[[bytes, int, int], tuple[int, int, int]]


def _uncompiled() -> Check:
    module = uncompiled("record_scan")
    vars(module)["MalformedRecordsError"] = MalformedRecordsError
    found: Check = module.check_records
    return found


@pytest.fixture(params=[record_scan.check_records, _uncompiled()], ids=["as installed", "uncompiled"])
def check(request: pytest.FixtureRequest) -> Check:
    found: Check = request.param
    return found


GOOD = [
    packed_record(0, b"value", key=b"key", headers=[(b"h", b"x"), (b"", None)], time_delta=5),
    packed_record(1, None, time_delta=-7),
    packed_record(2, b"v" * 300, key=b"", time_delta=1 << 40),
]


def _with_body(body: bytes) -> bytes:
    return varint(len(body)) + body


def test_good_records_are_taken(check: Check) -> None:
    assert check(b"before" + b"".join(GOOD), 6, 3) == (-7, 1 << 40, 1)
    assert check(GOOD[0], 0, 1) == (5, 5, -1)
    assert check(packed_record(0, b"x" * 100_000), 0, 1) == (0, 0, 0)  # longer than what is checked at one go


BAD: dict[str, tuple[bytes, int]] = {
    "too few": (GOOD[0], 2),
    "too many": (GOOD[0] + GOOD[1], 1),
    "left over": (GOOD[0] + b"\0", 1),
    "nothing": (b"", 1),
    "cut short": (GOOD[0][:-1], 1),
    "empty": (b"\0", 1),
    "negative length": (b"\1", 1),
    "numbered from 1": (packed_record(1, b"v"), 1),
    "numbered twice": (GOOD[0] + packed_record(0, b"v"), 2),
    "key too long": (_with_body(b"\0\0\0" + varint(50) + b"k" + b"\1\0"), 1),
    "key of -2": (_with_body(b"\0\0\0" + varint(-2) + b"\1\0"), 1),
    "value too long": (_with_body(b"\0\0\0\1" + varint(50) + b"v" + b"\0"), 1),
    "no headers": (_with_body(b"\0\0\0\1\1"), 1),
    "headers of -1": (_with_body(b"\0\0\0\1\1\1"), 1),
    "headers that are not there": (_with_body(b"\0\0\0\1\1" + varint(1_000_000)), 1),
    "header without name": (_with_body(b"\0\0\0\1\1\2\1\1"), 1),
    "header value too long": (_with_body(b"\0\0\0\1\1\2\2h" + varint(9)), 1),
    "bytes after the headers": (_with_body(b"\0\0\0\1\1\0??"), 1),
    "a length of six bytes": (b"\x8e\x80\x80\x80\x80\0" + b"\0\0\0\1\1\0\0", 1),
    "a time without end": (_with_body(b"\0" + b"\xff" * 11 + b"\0\1\1\0"), 1),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_records_are_refused(check: Check, name: str) -> None:
    with pytest.raises(MalformedRecordsError):
        check(BAD[name][0], 0, BAD[name][1])


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=60), st.integers(1, 5))
def test_both_forms_judge_any_bytes_alike(raw: bytes, count: int) -> None:
    verdicts: list[Any] = []
    for check in (record_scan.check_records, _PLAIN):
        try:
            verdicts.append(check(raw, 0, count))
        except MalformedRecordsError as error:
            verdicts.append(str(error))
    assert verdicts[0] == verdicts[1]


_PLAIN = _uncompiled()


def _checked(raw: bytes, *, needs_keys: bool = False) -> TimeRange:
    batch = check_batch(raw, 1 << 26)
    return check_plain_records(batch, plain_records_of(batch), needs_keys=needs_keys)


def _batch(codec: int, records: bytes, count: int) -> bytes:
    return framed(records, count, (1000, 1000), attributes=codec)


CODECS = {"gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}
codecs = pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)


@codecs
@pytest.mark.parametrize("framing", [XERIAL_MAGIC, b""], ids=["java", "plain"])
def test_compressed_records_are_taken(codec: int, framing: bytes) -> None:
    packed = compress_like(codec, memoryview(framing), b"".join(GOOD))
    assert _checked(_batch(codec, packed, 3)) == (993, 1000 + (1 << 40))


@codecs
def test_garbage_in_compression_is_refused(codec: int) -> None:
    for name, (raw, count) in BAD.items():
        with pytest.raises(InvalidBatchError, match="not what its header says"):
            _checked(_batch(codec, compress_like(codec, memoryview(b""), raw), count))
        assert name
    packed = compress_like(codec, memoryview(b""), GOOD[0])
    for damaged in (b"garbage", b"", packed[:-3], packed[: len(packed) // 2]):
        with pytest.raises(InvalidBatchError, match=r"cannot be decompressed|not what its header says"):
            _checked(_batch(codec, damaged, 1))


def test_an_unknown_codec_is_refused() -> None:
    with pytest.raises(InvalidBatchError, match="compression 7 is not known"):
        _checked(_batch(7, GOOD[0], 1))


@codecs
def test_what_grows_beyond_the_bound_is_an_error_and_not_cut(codec: int) -> None:
    plain = bytes(300_000)
    for framing in (XERIAL_MAGIC, b""):
        packed = memoryview(compress_like(codec, memoryview(framing), plain))
        assert decompress(codec, packed, len(plain)) == plain
        for bytes_max in (1, 32 << 10, len(plain) - 1):
            with pytest.raises(ValueError, match=r"."):
                decompress(codec, packed, bytes_max)


def test_bytes_after_a_gzip_stream_are_refused() -> None:
    packed = compress_like(GZIP, memoryview(b""), GOOD[0])
    with pytest.raises(ValueError, match="7 bytes are left over"):
        decompress(GZIP, memoryview(packed + b"garbage"))


def test_timestamps_that_do_not_fit_are_refused() -> None:
    records = packed_record(0, b"v", key=b"k", time_delta=(1 << 63) - 1)
    with pytest.raises(InvalidBatchError, match="do not fit 64 bits"):
        _checked(_batch(0, records, 1))


@pytest.mark.parametrize("codec", range(5))
def test_a_batch_with_a_keyless_record_is_refused(codec: int) -> None:
    _checked(make_keyed_batch([(b"", b"x"), (b"k", None)], codec=codec), needs_keys=True)
    with pytest.raises(KeylessRecordError, match=r"message 1 of the batch has no key.*cleanup\.policy"):
        _checked(make_keyed_batch([(b"k", b"x"), (None, b"y")], codec=codec), needs_keys=True)


def test_all_keyless_records_of_a_batch_are_named() -> None:
    long = b"v" * 300
    pairs = [(None, long), (b"k", long), (None, None), (b"", b""), (None, b"")]
    with pytest.raises(KeylessRecordError) as caught:
        _checked(make_keyed_batch(pairs), needs_keys=True)
    assert caught.value.records == (0, 2, 4)
