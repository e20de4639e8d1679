"""Loads: files and tables to a topic, each row once, gone on with after a stop; bad rows and changed files are told."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.spark.pipelines import load_files
from penstock.spark.pipelines.errors import BadRowError, ChangedInputError, SpecError
from penstock.spark.pipelines.kinds import make_job
from penstock.spark.pipelines.load_files import cut_file
from penstock.spark.pipelines.load_locations import InputFile, LocalFiles, ObjectFiles, location_of
from penstock.spark.pipelines.load_reading import PartReader
from penstock.spark.pipelines.spec import FilesSpec
from penstock.spark.tables.files import LocalStore, file_store
from tests.spark.pipelines.runs import CLICKS, Runs

pytestmark = pytest.mark.timeout(300)


def write_parquet(path: Path, first: int, count: int) -> None:
    """Numbers in row groups of 100."""
    numbers = range(first, first + count)
    pq.write_table(pa.table({"key": [str(one) for one in numbers], "n": list(numbers)}), path, row_group_size=100)


def load(files: str, target: str, more: str = "") -> str:
    """The body of a file that loads."""
    return f"kind: load\nsource: {{files: {files}}}\ntarget: {{topic: {target}}}\n{more}"


@pytest.mark.slow
def test_parquet_is_loaded_once_over_a_restart_and_new_files_are_found(runs: Runs, caplog: pytest.LogCaptureFixture) -> None:
    incoming = runs.directory / "in"
    incoming.mkdir()
    for number in range(3):
        write_parquet(incoming / f"{number}.parquet", number * 250, 250)
    spec = runs.declare("files", load("{path: in, format: parquet}", "l1", "batch: {rows_max: 200}\n"))
    job = make_job(spec)
    job.start(runs.spark)
    first = job.step()
    assert first is not None
    assert 0 < first.rows_written < 750
    job.close()
    runs.run(spec)
    assert sorted(one["n"] for one in runs.values("l1")) == list(range(750))
    write_parquet(incoming / "0.parquet", 0, 10)
    write_parquet(incoming / "00.parquet", 1000, 10)
    runs.run(spec)
    assert sorted(one["n"] for one in runs.values("l1")) == [*range(750), *range(1000, 1010)]
    assert "0.parquet was changed after it was loaded" in caplog.text


@pytest.mark.slow
def test_a_file_changed_while_it_is_loaded_is_an_error(runs: Runs) -> None:
    write_parquet(runs.directory / "a.parquet", 0, 500)
    spec = runs.declare("changed", load("{path: a.parquet, format: parquet}", "l2", "batch: {rows_max: 100}\n"))
    job = make_job(spec)
    job.start(runs.spark)
    assert job.step() is not None
    job.close()
    write_parquet(runs.directory / "a.parquet", 0, 501)
    with pytest.raises(ChangedInputError, match=r"a\.parquet was changed while it was being loaded: 1 of 5 parts"):
        runs.run(spec)


@pytest.mark.slow
def test_lines_of_csv_and_json_that_cannot_be_read_are_put_aside(runs: Runs) -> None:
    (runs.directory / "x.csv").write_text('b,a,c\n1,"x\ny",2\nq,z,3\n1,2\n4,,5\n')
    runs.run(runs.declare("csv", load("{path: x.csv, format: csv, schema: 'a STRING, b INT'}", "l3", "")))
    assert runs.values("l3") == [{"a": "x\ny", "b": 1}, {"a": None, "b": 4}]
    assert sorted(row["value"] for row in runs.rows("csv.dead")) == [b"1,2", b"q,z,3"]
    (runs.directory / "x.json").write_text('{"a": 1, "b": 2}\n\n{bad\n{"a": "x"}')
    runs.run(runs.declare("lines", load("{path: x.json, format: json}", "l4")))
    assert [row["value"] for row in runs.rows("l4")] == [b'{"a": 1, "b": 2}', b'{"a": "x"}']
    with pytest.raises(BadRowError, match=r"row 1 of part 0 of .*x\.json cannot be read"):
        runs.run(runs.declare("typed", load("{path: x.json, format: json, schema: 'a INT'}", "l5", "dead_letters: stop\n")))
    assert runs.rows("l5") == []


@pytest.mark.slow
def test_a_table_is_loaded_as_it_was_when_the_load_began(runs: Runs) -> None:
    topic = runs.topic("l6")
    runs.produce(topic, [{"id": one, "page": "p"} for one in range(20)])
    table = "{format: delta, location: lake}"
    export = runs.declare("lake", f"kind: export\nsource: {CLICKS.replace('TOPIC', topic)}\ntarget: {{table: {table}}}\n")
    runs.run(export)
    spec = runs.declare("back", f"kind: load\nsource: {{table: {table}}}\ntarget: {{topic: l6-back}}\n")
    runs.run(spec)
    runs.produce(topic, [{"id": 99, "page": "p"}])
    runs.run(export)
    runs.run(spec)
    assert sorted(one["id"] for one in runs.values("l6-back")) == list(range(20))


@pytest.mark.slow
def test_files_in_an_s3_store_are_loaded_once(runs: Runs, s3: dict[str, str]) -> None:
    store = file_store("s3://payloads/landing", s3)
    lines = "".join(f'{{"n": {number}}}\n' for number in range(1000))
    for name in ("a.jsonl", "day=2/b.jsonl", "_part.jsonl", "c.txt"):
        store.create(name, lines.encode())
    files = f"{{path: 's3://payloads/landing', format: json, options: {json.dumps(s3)}}}"
    spec = runs.declare("bucket", load(files, "l8"))
    runs.run(spec)
    runs.run(spec)
    assert sorted(one["n"] for one in runs.values("l8")) == sorted([*range(1000)] * 2)
    write_parquet(runs.directory / "n.parquet", 0, 300)
    store.create("n.parquet", (runs.directory / "n.parquet").read_bytes())
    files = f"{{path: 's3a://payloads/landing/*.parquet', format: parquet, options: {json.dumps(s3)}}}"
    runs.run(runs.declare("pattern", load(files, "l9")))
    assert sorted(one["n"] for one in runs.values("l9")) == list(range(300))


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("s3://b/in", ["in/a.csv", "in/deep/er/b.csv"]),
        ("s3://b/in/a.csv", ["in/a.csv"]),
        ("s3://b/in/other.txt", ["in/other.txt"]),
        ("s3://b/in/?.*", ["in/a.csv"]),
        ("s3://b/**/[ab].csv", ["in/a.csv", "in/deep/er/b.csv", "index/a.csv"]),
        ("s3://b/in/*/b.csv", []),
    ],
)
def test_a_path_in_a_bucket_names_an_object_a_directory_or_a_pattern(tmp_path: Path, path: str, found: list[str]) -> None:
    store = LocalStore(str(tmp_path))  # lists as a bucket does
    for name in ("in/a.csv", "in/deep/er/b.csv", "in/_c.csv", "in/other.txt", "index/a.csv"):
        store.create(name, b"1")
    location = location_of(path, {})
    assert isinstance(location, ObjectFiles)
    objects = ObjectFiles(store, location.key).find((".csv",))
    assert [one.path.removeprefix(f"{tmp_path}/") for one in objects] == found
    for one in objects:
        with ObjectFiles(store, location.key).open(one.path) as stream:
            assert stream.read() == b"1"


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ("{path: none.parquet, format: parquet}", "source.files.path: there is no file"),
        ("{path: x.csv, format: csv, schema: 'a STRNG'}", "source.files.schema: "),
        ("{path: 'gs://b/x', format: json}", "source.files.path: location 'gs://b/x': "),
        ("{path: 's3:///x', format: json}", "source.files.path: location 's3://' names no bucket"),
    ],
)
def test_files_that_cannot_be_read_are_told_before_anything_runs(runs: Runs, files: str, told: str) -> None:
    with pytest.raises(SpecError) as caught:
        runs.run(runs.declare("nothing", load(files, "l7")))
    assert f"nothing.yaml:4: {told}" in str(caught.value)


def test_a_csv_file_is_cut_at_line_ends_that_are_no_part_of_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_files, "PART_BYTES", 50)
    monkeypatch.setattr(load_files, "_BLOCK_BYTES", 17)
    path = tmp_path / "x.csv"
    rows = [(one, "x" * (one % 13) + ("\n" if one % 3 else '""') + "y") for one in range(60)]
    path.write_text("n,t\n" + "".join(f'{number},"{text}"\n' for number, text in rows))
    spec = FilesSpec(str(path), "csv", "n INT, t STRING")
    location = LocalFiles(str(path))
    (file,) = location.find(())
    parts = cut_file(spec, location, file)
    assert len(parts) > 5
    reader = PartReader(spec, location, pa.schema([("n", pa.int32()), ("t", pa.string())]))
    found = [row for part in parts for good, bad in reader.read(part) for row in good.to_pylist() if bad is None]
    assert [(row["n"], row["t"].replace('"', '""')) for row in found] == rows
    assert [part.stop for part in parts[:-1]] == [part.start for part in parts[1:]]


def test_files_have_a_stable_order_and_unfinished_ones_are_left(tmp_path: Path) -> None:
    for name in ("b.json", "a.json", ".hidden.json", "_temporary.json", "c.txt"):
        (tmp_path / name).write_text("{}")
    found = LocalFiles(str(tmp_path)).find((".json",))
    assert [os.path.basename(one.path) for one in found] == ["a.json", "b.json"]
    assert found[0] == InputFile(str(tmp_path / "a.json"), 2, os.stat(tmp_path / "a.json").st_mtime_ns)
