"""How far bytes are sound records: equal compiled and as plain Python, wherever a byte is wrong."""

from __future__ import annotations

from types import ModuleType

import pytest

from penstock.blob.record import BLOCK_SIZE, NO_ID, RecordKind, encode
from penstock.kernels import sound_records
from tests.kernel_forms import uncompiled

FORMS = {"as installed": sound_records, "uncompiled": uncompiled("sound_records")}
forms = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
CHUNK, OFFSET = 7, 1000


def records(*lengths: int, chunk: int = CHUNK, offset: int = OFFSET) -> tuple[bytes, list[int]]:
    """Records of these lengths one after another, and where each ends."""
    data, ends = b"", []
    for length in lengths:
        body = bytes(range(256)) * (length // 256) + b"x" * (length % 256)
        data += b"".join(encode(RecordKind.PART, NO_ID, body, (chunk, offset + len(data)), (0, 0)))
        ends.append(len(data))
    return data, ends


@forms
def test_records_of_every_length_are_sound(form: ModuleType) -> None:
    data, ends = records(0, 1, 7, 8, 1024, 16 << 10, (16 << 10) + 1, BLOCK_SIZE)
    assert form.sound_to(data, CHUNK, OFFSET) == len(data)
    assert form.sound_to(data[:-1], CHUNK, OFFSET) == ends[-2], "the last is not whole"
    assert form.sound_to(b"", CHUNK, OFFSET) == form.sound_to(data[:63], CHUNK, OFFSET) == 0


@forms
def test_no_byte_may_be_wrong(form: ModuleType) -> None:
    data, ends = records(100, 200, 300)
    for at in range(ends[0], ends[1]):
        wrong = bytearray(data)
        wrong[at] ^= 1
        assert form.sound_to(bytes(wrong), CHUNK, OFFSET) == ends[0]


@forms
def test_a_record_of_another_place_is_not_believed(form: ModuleType) -> None:
    data, _ = records(100)
    assert form.sound_to(data, CHUNK + 1, OFFSET) == form.sound_to(data, CHUNK, OFFSET + 1) == 0


@forms
def test_it_ends_before_a_record_with_a_table(form: ModuleType) -> None:
    data, ends = records(100, BLOCK_SIZE + 1, 100)
    assert form.sound_to(data, CHUNK, OFFSET) == ends[0]
