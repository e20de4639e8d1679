"""The bytes of small log writes: equal compiled and as plain Python, and as the formats have them, whatever their length."""

from __future__ import annotations

import os
from pathlib import Path
from struct import Struct
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.blob.blob_id import CHANNEL_MAX, COOKIE_MAX, GENERATION_MAX, SIZE_FIELD_MAX, STEP_MAX, TABLET_MAX, BlobId
from penstock.core.checksum import crc32c
from penstock.kernels import file_links, log_bytes
from penstock.kernels.log_bytes import SHORT_MAX
from tests.kernel_forms import uncompiled

FORMS = {"as installed": log_bytes, "uncompiled": uncompiled("log_bytes")}
forms = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
LENGTHS = (*range(20), 63, 64, 65, 1023, 1024, 1100, SHORT_MAX - 70, *range(SHORT_MAX - 40, SHORT_MAX + 3), 64 << 10)
U32 = st.integers(0, (1 << 32) - 1)

_HEADER = Struct(">8sIIIIII25s3x")
_CRC = Struct(">I")


@forms
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_a_header_has_the_checksum_of_a_body_of_any_length(form: ModuleType, length: int, kind: type) -> None:
    body = (bytes(range(256)) * 300)[:length]
    head = _HEADER.pack(b"PENr\1\2\0\0", length, crc32c(body), 1, 2, 3, 4, b"i" * 25)
    start = form.record_start(b"PENr\1\2\0\0", b"i" * 25, kind(body), length, 1, 2, 3, 4)
    assert bytes(start) == head + _CRC.pack(crc32c(head))


@forms
@given(st.tuples(U32, U32, U32, U32), st.binary(min_size=25, max_size=25), st.binary(max_size=100))
def test_a_header_has_its_fields_as_the_format_says(
    form: ModuleType, places: tuple[int, int, int, int], blob_id: bytes, body: bytes
) -> None:
    head = _HEADER.pack(b"PENr\1\2\0\0", len(body), crc32c(body), *places, blob_id)
    assert bytes(form.record_start(b"PENr\1\2\0\0", blob_id, body, len(body), *places)) == head + _CRC.pack(crc32c(head))


@forms
@pytest.mark.parametrize("length", LENGTHS)
def test_an_entry_is_its_sections_then_its_appends(form: ModuleType, length: int) -> None:
    data = os.urandom(length)
    appends = [(0, b"", b""), (7, b"note", data), ((1 << 32) - 1, b"n" * 300, b"x")]
    body = b"section" + _CRC.pack(len(appends))
    for queue, note, content in appends:
        body += Struct(">III").pack(queue, len(note), len(content)) + note + content
    entry = form.entry_of_appends(b"PENk\0\2\0\40", [b"sec", b"tion"], appends)
    assert bytes(entry) == b"PENk\0\2\0\40" + _CRC.pack(crc32c(body, crc32c(b"PENk\0\2\0\40"))) + body


@pytest.mark.parametrize("form", [file_links, uncompiled("file_links")], ids=["as installed", "uncompiled"])
def test_a_deleted_file_has_no_name(form: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "file"
    with path.open("wb") as file:
        assert form.has_name(file.fileno())
        path.unlink()
        assert not form.has_name(file.fileno())
    with pytest.raises(OSError, match="Bad file descriptor"):
        form.has_name(9999)


@forms
@given(st.integers(0, (1 << 63) - 1), st.integers(0, (1 << 31) - 1), st.integers(0, (1 << 31) - 1), st.binary(max_size=20))
def test_the_place_of_a_batch_is_set_in_its_first_bytes(
    form: ModuleType, offset: int, length: int, epoch: int, rest: bytes
) -> None:
    batch = bytearray(16) + rest
    form.set_place(batch, offset, length, epoch)
    assert bytes(batch) == Struct(">qii").pack(offset, length, epoch) + rest


@forms
def test_a_batch_that_is_too_short_has_no_place(form: ModuleType) -> None:
    with pytest.raises(IndexError):
        form.set_place(bytearray(15), 0, 0, 0)


@forms
def test_a_larger_room_begins_with_the_same_bytes(form: ModuleType) -> None:
    larger = form.grown(bytearray(b"abcdef"), 4, 10)
    assert (bytes(larger[:4]), len(larger)) == (b"abcd", 10)
    for size, capacity in ((7, 10), (4, 3), (-1, 10)):
        with pytest.raises(IndexError):
            form.grown(bytearray(b"abcdef"), size, capacity)


@forms
def test_a_blob_id_is_packed_as_its_class_packs_it(form: ModuleType) -> None:
    for blob in (BlobId(7, 1, 2, 3, 4, 5), BlobId(TABLET_MAX, CHANNEL_MAX, GENERATION_MAX, STEP_MAX, COOKIE_MAX, SIZE_FIELD_MAX)):
        assert form.packed_id(*blob[:5], blob.size << 4 | 1) == blob.pack_part(1)


@forms
@pytest.mark.parametrize("field", range(6))
def test_a_field_that_does_not_fit_a_blob_id_is_refused(form: ModuleType, field: int) -> None:
    widths = (8, 1, 4, 4, 4, 4)
    for value in (-1, 1 << 8 * widths[field]):
        fields = [value if at == field else 1 for at in range(6)]
        with pytest.raises(OverflowError):
            form.packed_id(*fields)


@forms
def test_a_part_of_bytes_is_within_them(form: ModuleType) -> None:
    assert form.part_of(b"abcdef", 1, 4) == b"bcd"
    for at, end in ((-1, 3), (4, 3), (0, 7)):
        with pytest.raises(IndexError):
            form.part_of(b"abcdef", at, end)
