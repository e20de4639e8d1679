"""Queries over tables: what is understood does what it says, and all else is refused."""

from __future__ import annotations

import pytest

from penstock.gateway.yt.errors import YtError
from penstock.gateway.yt.query import parse_query

ROWS = [{"a": number, "b": "even" if number % 2 == 0 else None, "$row_index": number} for number in range(6)]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("* from [//t] limit 2", [0, 1]),
        ("a from [//t] where a > 3", [4, 5]),
        ('a from [//t] where b = "even" and a <= 2', [0, 2]),
        ("a from [//t] where (a >= 1 and a < 3)", [1, 2]),
        ("a from [//t] where b = null order by a desc", [5, 3, 1]),
        ("a from [//t] where b != #", [0, 2, 4]),
        ("a from [//t] where a in (1, 5u, 9)", [1, 5]),
        ("a from [//t] where [$row_index] = 4", [4]),
        ("a from [//t] order by b, a desc limit 3", [5, 3, 1]),
        ("a FROM [//t] ORDER BY a OFFSET 2 LIMIT 2", [2, 3]),
    ],
)
def test_rows_that_a_query_finds(query: str, expected: list[int]) -> None:
    parsed = parse_query(query)
    assert parsed.path == "//t"
    assert [row["a"] for row in parsed.run(ROWS)] == expected


def test_columns_and_their_names() -> None:
    assert parse_query("a as x, b from [//t] limit 1").run(ROWS) == [{"x": 0, "b": "even"}]


def test_strings_are_unescaped() -> None:
    [condition] = parse_query(r'a from [//t] where b = "q\"\\"').conditions
    assert condition.value == 'q"\\'


def test_bounds_of_an_index() -> None:
    assert parse_query("* from [//t] where [$row_index] > 3 and [$row_index] <= 9").bounds("$row_index") == (4, 9)
    assert parse_query("* from [//t]").bounds("$row_index") == (0, None)


@pytest.mark.parametrize(
    "query",
    [
        "",
        "*",
        "* from",
        "* from //t",
        "* from [//t] where",
        "* from [//t] where a",
        "* from [//t] where a = ",
        "* from [//t] where a = 1 or a = 2",
        "* from [//t] group by a",
        "* from [//t] limit x",
        "a + 1 from [//t]",
        "* from [//t] where a = 1)",
        "* from [//t] ; drop",
    ],
)
def test_what_is_not_understood_is_refused(query: str) -> None:
    with pytest.raises(YtError):
        parse_query(query)
