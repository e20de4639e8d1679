"""Tables without Spark: files and progress in one commit, a stale one refused, columns that grow, and what a crash leaves."""

from __future__ import annotations

import os
import pickle
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

from penstock.kafka.client import TopicPartition
from penstock.spark.pipelines.spec import TableSpec
from penstock.spark.tables.errors import TableLogError, TableOptionError, TableSchemaError
from penstock.spark.tables.parquet import Parquet
from penstock.spark.tables.parquet_log import LogEntry, entry_path
from penstock.spark.tables.progress import Progress
from penstock.spark.tables.table import Table, TableFencedError, open_table
from penstock.spark.tables.task_writer import DataFile, TaskWriter
from tests.spark.pipelines.table_pipelines import FORMATS, read_table

SCHEMA = pa.schema(
    [("id", pa.int64()), ("page", pa.string()), ("time", pa.timestamp("us", "UTC")), ("at", pa.struct([("x", pa.int32())]))]
)
FIRST = Progress(7, 1, {TopicPartition("clicks", 0): 10}, {"clicks": "0a"})
SECOND = Progress(7, 2, {TopicPartition("clicks", 0): 20, TopicPartition("clicks", 1): 5}, {"clicks": "0a"})
CUT = ("day(time)", "page")
PAGE = "a b/{}:ä%, and longer than the statistics of most formats are"


def rows(start: int, stop: int) -> pa.RecordBatch:
    """Rows over several days and pages, some of which have names that paths cannot have."""
    return pa.RecordBatch.from_pylist(
        [
            {
                "id": number,
                "page": None if number % 4 == 0 else PAGE.format(number % 4),
                "time": datetime(2026, 11, 1 + number % 3, 23, 59, 59, 999999, tzinfo=UTC),
                "at": {"x": number},
            }
            for number in range(start, stop)
        ],
        schema=SCHEMA,
    )


def made(form: str, directory: Path, **more: Any) -> Table:
    """A table that takes rows."""
    name = "db.clicks" if form == "iceberg" else None
    table = open_table(TableSpec(form, str(directory / "lake"), name=name, **more), "pipe")
    table.prepare(SCHEMA)
    return table


def again(table: Table) -> Table:
    """The same table, as another process sees it."""
    found = open_table(table.spec, table.pipeline)
    found.refresh()
    return found


def write(table: Table, *batches: pa.RecordBatch) -> list[DataFile]:
    """What a task does, by way of a pickle."""
    writer: TaskWriter = pickle.loads(pickle.dumps(table.writer()))
    return writer.write(batches, "test")


def held(table: Table) -> list[int]:
    """The ids of all rows, as our own reader has them."""
    reader = pickle.loads(pickle.dumps(table.reader()))
    return sorted(number for file in table.data_files() for batch in reader.read(file) for number in batch["id"].to_pylist())


def sleep_after_looking(table: Table) -> None:
    """The next look at a table shows what it was like before."""
    look = table.refresh

    def stale() -> None:
        table.refresh = look  # type: ignore[method-assign]

    table.refresh = stale  # type: ignore[method-assign]


@pytest.mark.parametrize("form", FORMATS)
def test_files_and_progress_are_one_commit(form: str, tmp_path: Path) -> None:
    table = made(form, tmp_path, partition_by=CUT)
    assert again(table).progress() is None
    table.commit(write(table, rows(0, 6), rows(6, 12)), FIRST, None)
    other = again(table)
    assert other.progress() == FIRST
    other.commit(write(other, rows(12, 20)), SECOND, FIRST)
    assert again(table).every_progress() == {"pipe": SECOND}
    assert held(again(table)) == list(range(20))
    found = read_table(form, tmp_path / "lake").sort_by("id")
    assert found["id"].to_pylist() == list(range(20))
    assert found["page"].to_pylist() == [None if number % 4 == 0 else PAGE.format(number % 4) for number in range(20)]
    assert found["at"].to_pylist() == [{"x": number} for number in range(20)]


@pytest.mark.parametrize("form", FORMATS)
def test_who_only_reads_need_not_know_the_partitions(form: str, tmp_path: Path) -> None:
    table = made(form, tmp_path, partition_by=("hour(time)", "page"))
    table.commit(write(table, rows(0, 8)), FIRST, None)
    plain = open_table(replace(table.spec, partition_by=()), "reader")
    plain.refresh()
    reader = plain.reader()
    found = [row for file in plain.data_files() for batch in reader.read(file, ["id", "page"]) for row in batch.to_pylist()]
    expected = [{"id": number, "page": None if number % 4 == 0 else PAGE.format(number % 4)} for number in range(8)]
    assert sorted(found, key=lambda row: int(row["id"])) == expected


@pytest.mark.parametrize("form", FORMATS)
def test_a_commit_on_a_stale_table_is_refused(form: str, tmp_path: Path) -> None:
    table = made(form, tmp_path)
    zombie = again(table)
    left = write(zombie, rows(100, 110))
    table.commit(write(table, rows(0, 10)), FIRST, None)
    with pytest.raises(TableFencedError, match="another copy of pipeline pipe has taken over"):
        zombie.commit(left, replace(FIRST, run=8), None)
    assert held(again(table)) == list(range(10))
    assert sorted(read_table(form, tmp_path / "lake")["id"].to_pylist()) == list(range(10))


@pytest.mark.parametrize("form", FORMATS)
def test_a_lost_race_is_refused_even_after_the_check(form: str, tmp_path: Path) -> None:
    table = made(form, tmp_path)
    zombie = again(table)
    left = write(zombie, rows(100, 110))
    # It has looked and found its turn; then the other commits.
    table.commit(write(table, rows(0, 10)), FIRST, None)
    sleep_after_looking(zombie)
    with pytest.raises(TableFencedError):
        zombie.commit(left, replace(FIRST, run=8), None)
    assert held(again(table)) == list(range(10))


@pytest.mark.parametrize("form", FORMATS)
def test_a_commit_that_is_repeated_does_nothing(form: str, tmp_path: Path) -> None:
    table = made(form, tmp_path)
    files = write(table, rows(0, 10))
    table.commit(files, FIRST, None)
    again(table).commit(files, FIRST, None)
    assert held(again(table)) == list(range(10))


@pytest.mark.parametrize("form", FORMATS)
def test_progress_goes_on_without_rows(form: str, tmp_path: Path) -> None:
    table = made(form, tmp_path)
    table.commit([], FIRST, None)
    again(table).commit([], SECOND, FIRST)
    assert again(table).progress() == SECOND
    assert held(again(table)) == []


@pytest.mark.parametrize("form", FORMATS)
def test_files_take_the_place_of_others_and_vacuum_removes_those(form: str, tmp_path: Path) -> None:
    table = made(form, tmp_path, partition_by=("page",))
    table.commit(write(table, rows(0, 6)), FIRST, None)
    old = table.data_files()
    table.commit(write(table, rows(6, 12)), SECOND, FIRST)
    table.refresh()
    reader = table.reader()
    new = write(table, *[batch for file in old for batch in reader.read(file)])
    table.commit(new, replace(SECOND, batch=3), SECOND, removed=old, rewrites=True)
    abandoned = write(table, rows(50, 60))
    found = again(table)
    assert held(found) == list(range(12))
    assert found.vacuum(0) >= len(abandoned)
    assert held(again(found)) == list(range(12))
    assert sorted(read_table(form, tmp_path / "lake")["id"].to_pylist()) == list(range(12))
    live = {one.path for one in again(found).data_files()}
    left = {str(path.relative_to(tmp_path / "lake")) for path in (tmp_path / "lake").rglob("*.parquet")}
    assert {path for path in left if "_delta_log" not in path} == live


@pytest.mark.parametrize("form", FORMATS)
def test_columns_are_added_and_older_rows_have_nulls_there(form: str, tmp_path: Path) -> None:
    table = made(form, tmp_path)
    table.commit(write(table, rows(0, 2)), FIRST, None)
    table.prepare(pa.schema([*SCHEMA, pa.field("price", pa.float64())]))
    table.commit(write(table, pa.RecordBatch.from_pydict({"id": [2], "price": [1.5]})), SECOND, FIRST)
    found = read_table(form, tmp_path / "lake").sort_by("id")
    assert found["price"].to_pylist() == [None, None, 1.5]
    assert found["page"].to_pylist() == [None, PAGE.format(1), None]


@pytest.mark.parametrize("form", FORMATS)
def test_a_table_of_other_columns_is_an_error_that_names_the_column(form: str, tmp_path: Path) -> None:
    table = made(form, tmp_path)
    with pytest.raises(TableSchemaError, match=r"column 'page' of .* is string, the pipeline writes int64"):
        table.check(pa.schema([("page", pa.int64())]))
    with pytest.raises(TableSchemaError, match="'Page'"):
        table.check(pa.schema([("Page", pa.string())]))
    strict = open_table(replace(table.spec, schema_evolution="refuse"), "pipe")
    with pytest.raises(TableSchemaError, match="lacks price double"):
        strict.check(pa.schema([*SCHEMA, pa.field("price", pa.float64())]))
    cut = open_table(replace(table.spec, partition_by=("page",)), "pipe")
    with pytest.raises(TableSchemaError, match="partitioned by nothing"):
        cut.check(SCHEMA)


def test_iceberg_widens_columns(tmp_path: Path) -> None:
    small = pa.schema([("id", pa.int32())])
    table = open_table(TableSpec("iceberg", str(tmp_path / "lake"), name="db.clicks"), "pipe")
    table.prepare(small)
    table.commit(write(table, pa.RecordBatch.from_pydict({"id": pa.array([1], pa.int32())})), FIRST, None)
    table.prepare(pa.schema([("id", pa.int64())]))
    table.commit(write(table, pa.RecordBatch.from_pydict({"id": [1 << 40]})), SECOND, FIRST)
    assert sorted(read_table("iceberg", tmp_path / "lake")["id"].to_pylist()) == [1, 1 << 40]


@pytest.mark.parametrize("form", ["delta", "parquet"])
def test_where_types_cannot_widen_the_column_is_named(form: str, tmp_path: Path) -> None:
    table = open_table(TableSpec(form, str(tmp_path / "lake")), "pipe")
    table.prepare(pa.schema([("id", pa.int32())]))
    with pytest.raises(TableSchemaError, match="column 'id'"):
        table.prepare(pa.schema([("id", pa.int64())]))


@pytest.mark.parametrize(
    ("cut", "why"), [("week(time)", "year, month, day, hour"), ("day(page)", "needs a time"), ("nope", "no column")]
)
def test_partitions_that_cannot_be_are_refused(cut: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(TableSchemaError, match=why):
        made("parquet", tmp_path, partition_by=(cut,))


@pytest.mark.parametrize("form", FORMATS)
def test_files_are_cut_at_a_size_and_by_every_unit_of_time(form: str, tmp_path: Path) -> None:
    table = made(form, tmp_path, partition_by=("hour(time)",), compact_file_bytes=1)
    many = pa.concat_batches([rows(0, 9)] * 300)
    files = write(table, many, many)
    assert {file.values for file in files} == {(f"2026-11-0{day}-23",) for day in (1, 2, 3)}
    table.commit(files, FIRST, None)
    found = read_table(form, tmp_path / "lake")
    assert found.num_rows == 5400
    assert [file.rows for file in again(table).data_files()] == [900] * 6


# What a crash leaves of a table of plain files.


def test_a_commit_that_was_not_published_is_published_by_the_next_to_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made("parquet", tmp_path, partition_by=("page",))
    with monkeypatch.context() as dying:
        dying.setattr(Parquet, "_publish", lambda self, entry: None)
        table.commit(write(table, rows(0, 10)), FIRST, None)
    assert not list((tmp_path / "lake").glob("page*"))
    assert held(again(table)) == list(range(10))
    found = pyarrow.dataset.dataset(tmp_path / "lake", partitioning="hive").to_table()
    assert sorted(found["id"].to_pylist()) == list(range(10))


def test_files_that_were_not_committed_are_not_seen_by_readers_of_directories(tmp_path: Path) -> None:
    table = made("parquet", tmp_path)
    table.commit(write(table, rows(0, 10)), FIRST, None)
    write(table, rows(10, 20))
    assert sorted(read_table("parquet", tmp_path / "lake")["id"].to_pylist()) == list(range(10))
    assert sorted(pq.read_table(tmp_path / "lake")["id"].to_pylist()) == list(range(10))


def test_a_writer_that_slept_while_its_number_was_vacuumed_away_is_refused(tmp_path: Path) -> None:
    table = made("parquet", tmp_path)
    zombie = again(table)
    assert isinstance(zombie, Parquet)
    left = write(zombie, rows(900, 910))
    before: Progress | None = None
    for number in range(1, 40):
        now = replace(FIRST, batch=number)
        table.commit(write(table, rows(number, number + 1)), now, before)
        before = now
    table.vacuum(0)
    assert not (tmp_path / "lake" / entry_path(1)).exists()
    sleep_after_looking(zombie)
    with pytest.raises(TableFencedError):
        zombie.commit(left, replace(FIRST, run=8), None)
    assert held(again(table)) == list(range(1, 40))
    assert sorted(read_table("parquet", tmp_path / "lake")["id"].to_pylist()) == list(range(1, 40))


def test_a_damaged_entry_is_told_from_a_good_one(tmp_path: Path) -> None:
    table = made("parquet", tmp_path)
    table.commit(write(table, rows(0, 10)), FIRST, None)
    path = tmp_path / "lake" / entry_path(1)
    data = path.read_bytes()
    assert LogEntry.from_bytes(data, "x").to_bytes() == data
    path.write_bytes(data[:-9] + b"x" + data[-8:])
    with pytest.raises(TableLogError, match="damaged"):
        again(table)


def test_an_empty_entry_that_a_power_cut_left_in_a_log_of_delta_is_a_commit_of_nothing(tmp_path: Path) -> None:
    table = made("delta", tmp_path)
    table.commit(write(table, rows(0, 10)), FIRST, None)
    log = tmp_path / "lake" / "_delta_log"
    (log / f"{len(os.listdir(log)):020d}.json").touch()
    found = again(table)
    assert found.progress() == FIRST
    found.commit(write(found, rows(10, 20)), SECOND, FIRST)
    assert held(again(table)) == list(range(20))


def test_iceberg_without_a_catalog_needs_a_local_directory() -> None:
    with pytest.raises(TableOptionError, match="needs a catalog"):
        open_table(TableSpec("iceberg", "s3://bucket/t", name="db.t"), "pipe").refresh()


@pytest.mark.parametrize("form", FORMATS)
def test_tables_in_an_s3_store(form: str, s3: dict[str, str], tmp_path: Path) -> None:
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db"} if form == "iceberg" else {}
    name = "db.clicks" if form == "iceberg" else None
    spec = TableSpec(form, f"s3://payloads/{tmp_path.name}", name=name, catalog=catalog, partition_by=CUT, options=s3)
    table = open_table(spec, "pipe")
    table.prepare(SCHEMA)
    zombie = again(table)
    table.commit(write(table, rows(0, 10)), FIRST, None)
    with pytest.raises(TableFencedError):
        zombie.commit(write(zombie, rows(50, 60)), replace(FIRST, run=8), None)
    found = again(table)
    old, reader = found.data_files(), found.reader()
    new = write(found, *[batch for file in old for batch in reader.read(file)], rows(10, 20))
    found.commit(new, SECOND, FIRST, removed=old)
    assert again(table).progress() == SECOND
    assert again(table).vacuum(0) >= 0
    assert held(again(table)) == list(range(20))
