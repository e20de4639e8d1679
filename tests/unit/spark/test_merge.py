"""What a merge makes of changes: the last row of each key, or all versions of it, in whatever batches the changes come."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from penstock.spark.errors import RowError
from penstock.spark.pipelines.spec import MergeSpec
from penstock.spark.tables.files import LocalStore
from penstock.spark.tables.merge_task import (
    CURRENT,
    VALID_FROM,
    VALID_TO,
    ChangeLayout,
    DropKeysTask,
    among,
    last_of_each_key,
    versions,
)
from penstock.spark.tables.table import TableReader
from penstock.spark.tables.task_writer import TaskWriter

Change = tuple[str, int | None, str | None]  # key, time (None: a tombstone), page (None deletes)


def changes(layout: ChangeLayout, given: list[Change]) -> pa.RecordBatch:
    """Changes of one partition in the order of their offsets."""
    rows = pa.RecordBatch.from_pydict({"id": [key for key, _, _ in given], "page": [page for *_, page in given]})
    order = pa.array([at for _, at, _ in given], pa.int64())
    if "at" in layout.table.names:
        rows = rows.append_column("at", order)
    place = pa.array([0] * len(given), pa.int32()), pa.array(range(len(given)), pa.int64())
    return layout.changes(rows, order, place, pa.array([page is None for *_, page in given]))


def in_batches(layout: ChangeLayout, given: list[list[Change]]) -> pa.Table:
    """The table after some batches, each merged with the rows of its keys."""
    table = layout.table.empty_table()
    for batch in given:
        new = changes(layout, batch)
        keys = pa.table({"id": sorted({key for key, *_ in batch})})
        kept = []
        for rows in table.combine_chunks().to_batches():
            hit = among(rows, keys)
            kept.append(rows.filter(pa.compute.invert(hit)))
            new = pa.concat_batches([new, layout.stored(rows.filter(hit))])
        merged = pa.Table.from_batches([new])
        done = versions(merged, layout.merge) if layout.merge.history else last_of_each_key(merged, layout.merge, is_query=False)
        table = pa.concat_tables([*(pa.Table.from_batches([rows]) for rows in kept), done.select(layout.table.names)])
    return table


def batches_of(random: Random, given: list[Change]) -> list[list[Change]]:
    """Some changes cut into batches at random."""
    cuts = sorted(random.sample(range(1, len(given)), 3))
    return [given[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(given)], strict=True)]


@pytest.mark.parametrize("seed", range(20))
def test_the_greatest_order_wins_though_changes_come_late(seed: int) -> None:
    random = Random(seed)
    layout = ChangeLayout(
        MergeSpec(("id",), "at"), pa.schema([("id", pa.string()), ("page", pa.string()), ("at", pa.int64())]), pa.int64()
    )
    given: list[Change] = [(random.choice("abc"), at, f"p{at}") for at in random.sample(range(100), 30)]
    found = {row["id"]: row["at"] for row in in_batches(layout, batches_of(random, given)).to_pylist()}
    assert found == {key: max(at or 0 for other, at, _ in given if other == key) for key in {key for key, *_ in given}}


@pytest.mark.parametrize("seed", range(20))
def test_a_tombstone_deletes_what_came_before_it_though_it_has_no_order(seed: int) -> None:
    random = Random(seed)
    fields: list[tuple[str, Any]] = [("id", pa.string()), ("page", pa.string()), ("at", pa.int64())]
    layout = ChangeLayout(MergeSpec(("id",), "at"), pa.schema(fields), pa.int64())
    given: list[Change] = []
    expected: dict[str, int] = {}
    for at in random.sample(range(100), 40):
        key = random.choice("abc")
        if random.random() < 0.3:
            given.append((key, None, None))
            expected.pop(key, None)
        else:
            given.append((key, at, f"p{at}"))
            expected[key] = max(at, expected.get(key, at))
    found = {row["id"]: row["at"] for row in in_batches(layout, batches_of(random, given)).to_pylist()}
    assert found == expected


def test_a_tombstone_leaves_rows_of_other_keys_and_partitions() -> None:
    fields: list[tuple[str, Any]] = [("id", pa.string()), ("pages", pa.list_(pa.string())), ("at", pa.int64())]
    layout = ChangeLayout(MergeSpec(("id",), "at"), pa.schema(fields), pa.int64())
    rows = pa.RecordBatch.from_pydict(
        {"id": ["a", "a", "b", "a"], "pages": [["x"], None, ["y"], ["z"]], "at": [9, None, 4, 2]}, pa.schema(fields)
    )
    place = pa.array([0, 0, 0, 1], pa.int32()), pa.array([0, 1, 2, 0], pa.int64())
    change = layout.changes(rows, rows.column("at"), place, pa.array([False, True, False, False]))
    merged = last_of_each_key(pa.Table.from_batches([change]), layout.merge, is_query=False)
    assert sorted((row["id"], row["pages"]) for row in merged.to_pylist()) == [("a", ["z"]), ("b", ["y"])]


@pytest.mark.parametrize("seed", range(20))
def test_versions_follow_each_other_in_whatever_order_changes_come(seed: int) -> None:
    random = Random(seed)
    fields: list[tuple[str, Any]] = [("id", pa.string()), ("page", pa.string())]
    fields += [(VALID_FROM, pa.int64()), (VALID_TO, pa.int64()), (CURRENT, pa.bool_())]
    layout = ChangeLayout(MergeSpec(("id",), history=True), pa.schema(fields), pa.int64())
    # A deletion that comes before the version that it ends leaves nothing behind, so deletions are in order.
    times = random.sample(range(100), 30) if seed % 2 else sorted(random.sample(range(100), 30))
    given: list[Change] = [
        (random.choice("abc"), at, random.choice(("x", "y") if seed % 2 else ("x", "y", None))) for at in times
    ]
    found = in_batches(layout, batches_of(random, given)).to_pylist()
    expected = []
    for key in "abc":
        history = sorted((at or 0, page) for other, at, page in given if other == key)
        for (at, page), (until, _) in zip(history, [*history[1:], (None, None)], strict=True):
            if page is not None:
                expected.append((key, page, at, until, until is None))
    assert sorted(tuple(row.values()) for row in found) == sorted(expected)


def test_of_changes_at_the_same_time_the_last_is_the_version() -> None:
    fields: list[tuple[str, Any]] = [("id", pa.string()), ("page", pa.string())]
    fields += [(VALID_FROM, pa.int64()), (VALID_TO, pa.int64()), (CURRENT, pa.bool_())]
    layout = ChangeLayout(MergeSpec(("id",), history=True), pa.schema(fields), pa.int64())
    table = in_batches(layout, [[("a", 1, "first"), ("a", 1, "second")], [("a", 1, "third"), ("b", 5, None)]])
    assert [tuple(row.values()) for row in table.to_pylist()] == [("a", "third", 1, None, True)]


def test_two_rows_of_a_key_without_an_order_are_refused() -> None:
    layout = ChangeLayout(MergeSpec(("id",)), pa.schema([("id", pa.string()), ("page", pa.string())]), pa.int64())
    rows = pa.Table.from_batches([changes(layout, [("a", 1, "x"), ("a", 2, "y")])])
    with pytest.raises(RowError, match=r"two rows of one key \(id\)"):
        last_of_each_key(rows, layout.merge, is_query=True)
    assert last_of_each_key(rows, layout.merge, is_query=False)["page"].to_pylist() == ["y"]


@pytest.mark.parametrize(("keys", "is_read"), [([5], True), ([0, 20], True), ([20, 30], False), ([0, 1], False)])
def test_a_file_whose_statistics_exclude_the_keys_is_left_alone(tmp_path: Path, keys: list[int], *, is_read: bool) -> None:
    schema = pa.schema([("id", pa.int64()), ("page", pa.string())])
    writer = TaskWriter(LocalStore(str(tmp_path)), schema)
    (file,) = writer.write([pa.RecordBatch.from_pydict({"id": [3, 5, 9], "page": list("abc")}, schema)], "first")
    reader = TableReader(writer.store, schema, ())
    assert reader.may_hold(file, "id", min(keys), max(keys)) == is_read
    kept = DropKeysTask(reader, writer, pa.table({"id": pa.array(keys, pa.int64())}), "next")(0, file)
    found = None if kept is None else [row["id"] for each in kept for rows in reader.read(each) for row in rows.to_pylist()]
    assert found == ([3, 9] if keys == [5] else None)


def test_keys_of_several_columns_are_found() -> None:
    rows = pa.RecordBatch.from_pydict({"n": [1, 1, 2, 2], "k": ["a", "b", "a", None]})
    assert among(rows, pa.table({"n": [1, 2], "k": ["b", "a"]})).to_pylist() == [False, True, True, False]
