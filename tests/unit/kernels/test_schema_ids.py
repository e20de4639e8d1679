"""Records that name no known schema, found by the kernel, compiled and as plain Python: the same from both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from penstock.core.record_format import packed_record
from penstock.kernels import schema_ids
from tests.kernel_forms import uncompiled

Find = Callable[..., tuple[int, int]]
IDS = np.array([3, 70, 100_000], np.int64)


@pytest.fixture(params=[schema_ids.find_unknown, uncompiled("schema_ids").find_unknown], ids=["as installed", "uncompiled"])
def find(request: pytest.FixtureRequest) -> Find:
    found: Find = request.param
    return found


def frame(schema_id: int) -> bytes:
    """A value with the id of a schema."""
    return b"\0" + schema_id.to_bytes(4, "big") + b"payload"


def records(values: Sequence[bytes | None], key: bytes | None = b"key") -> tuple[bytes, int]:
    """Records with these values."""
    return b"".join(packed_record(number, value, key=key) for number, value in enumerate(values)), len(values)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([frame(3), frame(70), frame(100_000), None, frame(3)], (-1, -1)),
        ([frame(3), frame(71), frame(70)], (1, 71)),
        ([frame(3), frame(3), b"\0\0\0"], (2, -1)),
        ([b"{" + frame(3)[1:]], (0, -1)),
        ([b""], (0, -1)),
        ([], (-1, -1)),
    ],
)
def test_the_first_record_without_a_known_schema_is_found(
    find: Find, values: list[bytes | None], expected: tuple[int, int]
) -> None:
    assert find(*records(values)[:1], 0, len(values), IDS, False, -1) == expected


def test_a_search_goes_on_behind_a_record(find: Find) -> None:
    data, count = records([b"x", frame(3), b"y", frame(9)])
    rows: list[int] = []
    row = -1
    while (row := find(data, 0, count, IDS, False, row)[0]) >= 0:
        rows.append(row)
    assert rows == [0, 2, 3]


def test_keys_are_looked_at_if_that_is_asked_for(find: Find) -> None:
    data, count = records([b"anything"], key=frame(70))
    assert find(data, 0, count, IDS, True, -1) == (-1, -1)
    assert find(data, 0, count, IDS, False, -1) == (0, -1)
    assert find(*records([b"x"], key=None)[:1], 0, 1, IDS, True, -1) == (-1, -1)


def test_records_that_are_cut_short_are_not_known(find: Find) -> None:
    data: Any = records([frame(3)] * 3)[0]
    for size in range(len(data)):
        assert find(data[:size], 0, 3, IDS, False, -1)[0] >= 0
