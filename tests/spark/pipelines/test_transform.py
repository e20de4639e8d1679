"""Transforms without state: rows and offsets are committed as one, and the target alone says where to go on."""

from __future__ import annotations

import json
import re
from typing import Any

import confluent_kafka
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.kafka.client import BlockingClient
from penstock.spark.errors import DataLossError
from penstock.spark.pipelines.batch_rows import BatchRows
from penstock.spark.pipelines.errors import (
    BadRowError,
    ChangedInputError,
    PipelineFencedError,
    SpecError,
    TooManyDeadLettersError,
)
from penstock.spark.pipelines.fence import target_options
from penstock.spark.pipelines.kinds import make_job
from penstock.spark.pipelines.simple_query import simple_query
from penstock.spark.pipelines.topic_source import TopicSource
from tests.spark.pipelines.runs import CLICKS, Runs, transform
from tests.spark.reads import read, schema

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SIMPLE = (
    "true",
    "offset >= 2 AND 5 > offset",
    "NOT (offset = 3 OR partition = 1)",
    "key = X'61'",
    "key != X'61'",
    "key < X'62'",
    "NOT (key > X'61')",
    "key IS NULL OR offset = 4",
    "key IS NOT NULL",
    "offset IN (1, 3, 9)",
    "offset NOT IN (1, 3)",
    "topic LIKE 't-s%' AND topic LIKE '%simple' AND topic LIKE '%-s%'",
    "topic NOT LIKE 't-%'",
    "timestamp > timestamp'2020-01-01 00:00:00'",
)
FOR_SPARK = ("key <=> X'61'", "length(value) > 1", "offset % 2 = 0", "offset = partition", "rand() < 0.5", "topic RLIKE 't.*'")


def click(number: int) -> dict[str, Any]:
    """A click as a value."""
    return {"id": number, "page": f"/p{number % 5}", "at": f"2026-11-01T00:{number // 60:02}:{number % 60:02}Z"}


def record_of(runs: Runs, name: str) -> dict[str, Any]:
    """A pipeline's record in the broker."""
    cluster = BlockingClient(target_options(runs.declare(name, "kind: replay\nsource: {topics: [x]}\ntarget: {topic: y}")).client)
    stored = cluster.record(f"pipeline/{name}")
    cluster.close()
    return json.loads(stored or b"{}")  # type: ignore[no-any-return] # JSON


def test_each_row_is_written_once_and_bad_ones_are_put_aside(runs: Runs) -> None:
    topic = runs.topic("t1")
    runs.produce(topic, [*map(click, range(100)), b"{bad"])
    runs.produce(topic, [*map(click, range(100, 150)), b'{"id": "x"}'], partition=1)
    sql = "SELECT id AS key, id, upper(page) AS page, offset FROM t1 WHERE id % 2 = 0"
    body = transform(CLICKS.replace("TOPIC", topic), sql, "t1-even, partitions: 3", "batch: {rows_max: 60}\n")
    spec = runs.declare("even", body)
    state = runs.run(spec)
    found = runs.rows("t1-even")
    assert sorted(json.loads(row["value"])["id"] for row in found) == list(range(0, 150, 2))
    assert {int(row["key"]) for row in found} == set(range(0, 150, 2))
    assert json.loads(found[0]["value"]).keys() == {"id", "page", "offset"}
    assert (state["rows_read"], state["rows_written"], state["dead_letters"], state["lag_rows"]) == (152, 75, 2, 0)
    dead = read(runs.node.bootstrap, subscribe="even.dead", includeHeaders="true", startingOffsets="earliest")
    assert sorted(row["value"] for row in dead) == [b'{"id": "x"}', b"{bad"]
    assert record_of(runs, "even")["offsets"] == {topic: {"0": 101, "1": 51}}
    again = runs.run(spec)
    assert (again["batches"], len(runs.rows("t1-even")), len(runs.rows("even.dead"))) == (0, 75, 2)
    runs.produce(topic, [click(200)])
    assert runs.run(spec)["rows_read"] == 1


def test_a_run_with_too_many_dead_letters_fails_with_the_first_reason(runs: Runs) -> None:
    topic = runs.topic("t1-framed", 1)
    runs.produce(topic, [*map(click, range(3)), {"other": 1}, *[b"\0\0\0\0\7" + json.dumps(click(9)).encode()] * 20])
    body = transform(CLICKS.replace("TOPIC", topic), "SELECT id FROM source", "t1-framed-out")
    with pytest.raises(TooManyDeadLettersError) as failed:
        runs.run(runs.declare("framed", body))
    assert re.match(
        r"20 of 24 rows of this run are dead letters, more than 10%; the first is offset 4 of t1-framed-0: not JSON .*"
        r"Confluent's serializers write with schema 7 of a registry.* They are in topic framed.dead. "
        r"Correct source.value, or allow more",
        str(failed.value),
    )
    assert "20 dead letters, 1 without any field of the schema" in runs.said
    assert len(runs.rows("t1-framed-out")) == 4  # what could be decoded is there
    runs.produce(topic, [b"bad"] * 20)
    state = runs.run(runs.declare("framed", body + "dead_letters: {share_max: 100%}\n"))
    assert (state["dead_letters"], state["empty_rows"], state["state"]) == (20, 0, "finished")


def test_rows_go_to_the_topics_that_a_column_names(runs: Runs) -> None:
    topic = runs.topic("t1-fan", 1)
    runs.produce(topic, [{"id": number, "page": f"p{number % 3}"} for number in range(30)])
    body = transform(CLICKS.replace("TOPIC", topic), "SELECT id, page FROM source", "'fan-{page}', partitions: 2")
    spec = runs.declare("fan", body)
    assert runs.run(spec)["rows_written"] == 30
    for number in range(3):
        assert sorted(row["id"] for row in runs.values(f"fan-p{number}")) == list(range(number, 30, 3))
    assert runs.run(spec)["rows_written"] == 0
    runs.produce(topic, [{"id": 1, "page": "no/name"}])
    with pytest.raises(BadRowError, match="a row names 'fan-no/name' as its topic; names have letters"):
        runs.run(spec)
    with pytest.raises(SpecError, match=r"target.topic: the result has no column region; there are id, page"):
        runs.run(runs.declare("fan-wrong", body.replace("{page}", "{region}")))


def test_dead_letters_tell_where_they_are_from_and_why(runs: Runs) -> None:
    topic = runs.topic("t2", 1)
    runs.produce(topic, [click(1), b"[1]"])
    body = transform(CLICKS.replace("TOPIC", topic), "SELECT id FROM t2", "t2-out")
    runs.run(runs.declare("told", body))
    columns = schema("value", "headers")
    (row,) = read(runs.node.bootstrap, columns, subscribe="told.dead", includeHeaders="true")
    headers = {one["key"]: one["value"] for one in row["headers"]}
    assert headers["penstock.topic"] == b"t2"
    assert (headers["penstock.partition"], headers["penstock.offset"], headers["penstock.pipeline"]) == (b"0", b"1", b"told")
    assert headers["penstock.reason"].startswith(b"not JSON of type struct")


def test_stop_stops_at_a_bad_row_and_commits_nothing_of_the_batch(runs: Runs) -> None:
    topic = runs.topic("t3", 1)
    runs.produce(topic, [click(1), b"{bad"])
    body = transform(CLICKS.replace("TOPIC", topic), "SELECT id FROM t3", "t3-out")
    with pytest.raises(BadRowError, match="the value at offset 1 of t3-0 is not JSON"):
        runs.run(runs.declare("stopping", body + "dead_letters: stop\n"))
    assert runs.rows("t3-out") == []


def test_avro_values_are_decoded_and_bad_ones_put_aside(runs: Runs) -> None:
    topic = runs.topic("t4", 1)
    runs.produce(topic, [b"\x02\x06abc", b"\x04", b"\x06\x02z"])
    avro = json.dumps(
        {"type": "record", "name": "r", "fields": [{"name": "id", "type": "long"}, {"name": "s", "type": "string"}]}
    )
    source = f"source: {{topics: [t4], value: {{format: avro, schema: '{avro}'}}}}\n"
    runs.run(
        runs.declare("avro", f"kind: transform\n{source}transform: {{sql: 'SELECT id, s FROM t4'}}\ntarget: {{topic: t4-out}}\n")
    )
    assert runs.values("t4-out") == [{"id": 1, "s": "abc"}, {"id": 3, "s": "z"}]
    assert [row["value"] for row in runs.rows("avro.dead")] == [b"\x04"]


def test_a_function_gets_views_and_tables_by_name(runs: Runs) -> None:
    topic = runs.topic("t5-in", 1)
    runs.produce(topic, [*map(click, range(10))])
    pq.write_table(pa.table({"page": ["/p0", "/p1"], "title": ["Home", "News"]}), runs.directory / "pages.parquet")
    (runs.directory / "make.py").write_text(
        "from pyspark.sql import functions as F\n"
        "@F.udf('string')\ndef loud(text):\n    return text + '!'\n"
        "def titles(t5_in, pages):\n    return t5_in.join(pages, 'page').select('id', loud('title').alias('title'))\n"
    )
    body = f"kind: transform\nsource: {CLICKS.replace('TOPIC', topic)}\n"
    body += "transform: {python: make.py:titles, tables: {pages: {format: parquet, location: pages.parquet}}}\n"
    body += "target: {topic: t5-out}\n"
    runs.run(runs.declare("titles", body))
    found = sorted((one["id"], one["title"]) for one in runs.values("t5-out"))
    assert found == [(0, "Home!"), (1, "News!"), (5, "Home!"), (6, "News!")]


def test_raw_rows_keep_key_value_and_order(runs: Runs) -> None:
    topic = runs.topic("t6", 1)
    runs.produce(topic, [b"%d" % number for number in range(50)])
    body = transform("t6", "SELECT key, value FROM t6", "t6-out, partitions: 1")
    runs.run(runs.declare("raw", body + "batch: {rows_max: 20}\n"))
    assert [row["value"] for row in runs.rows("t6-out")] == [b"%d" % number for number in range(50)]


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("{sql: SELEC 1}", "transform.sql: [PARSE_SYNTAX_ERROR]"),
        ("{sql: SELECT nope FROM bad}", "transform.sql: [UNRESOLVED_COLUMN.WITH_SUGGESTION]"),
        ("{sql: SELECT 1 AS x}", "transform.sql: the result does not come from any of the topics"),
        (
            "{sql: 'SELECT *, id AS value FROM bad'}",
            "transform.sql: with a column value the result is written as it is, and id, page",
        ),
        ("{sql: 'SELECT id AS value FROM bad'}", "transform.sql: column value is bigint; it must be string or binary"),
        ("{sql: 'SELECT id, id FROM bad'}", "transform.sql: the result has more than one column id"),
        ("{sql: SELECT id FROM bad ORDER BY id}", "transform.sql: Sorting is not supported on streaming"),
        (
            "{sql: 'SELECT page, count(*) n FROM bad GROUP BY page'}",
            "transform.sql: [STREAMING_OUTPUT_MODE.UNSUPPORTED_OPERATION]",
        ),
        ("{sql: SELECT DISTINCT page FROM bad, state: stateless}", "transform.state: the query remembers rows"),
        ("{python: missing.py:f}", "transform.python: "),
        ("{python: bad.py:g}", "transform.python: there is no function g in bad.py"),
        ("{python: bad.py:f}", "transform.python: the function returns int; it must return a DataFrame"),
        ("{python: bad.py:h}", "transform.python: the function takes x, y, but there is no x, y"),
    ],
)
def test_a_query_that_cannot_be_is_told_before_anything_runs(runs: Runs, query: str, told: str) -> None:
    if runs.node.run("topic", "describe", "bad").returncode != 0:
        runs.topic("bad", 1)
    (runs.directory / "bad.py").write_text("def f(bad):\n    return 1\ndef h(x, y):\n    return x\n")
    source = CLICKS.replace("TOPIC", "bad")
    spec = runs.declare("wrong", f"kind: transform\nsource: {source}\ntransform: {query}\ntarget: {{topic: bad-out}}\n")
    with pytest.raises(SpecError) as caught:
        runs.run(spec)
    assert f"wrong.yaml:5: {told}" in str(caught.value)
    assert record_of(runs, "wrong") == {}


def test_a_schema_that_is_none_is_told(runs: Runs) -> None:
    source = "{topics: [t7], value: {format: json, schema: 'id BIGGINT'}}"
    runs.topic("t7", 1)
    spec = runs.declare(
        "schema", f"kind: transform\nsource: {source}\ntransform: {{sql: SELECT id FROM t7}}\ntarget: {{topic: x}}\n"
    )
    with pytest.raises(SpecError, match=r"schema\.yaml:4: source\.value\.schema: it is no schema of json values"):
        runs.run(spec)


def test_a_partition_that_is_not_there_is_not_tried_again(runs: Runs) -> None:
    topic = runs.topic("t12", 1)
    runs.produce(topic, [b"1"])
    spec = runs.declare("nowhere", transform(topic, "SELECT value, 7 AS partition FROM t12", "t12-out, partitions: 2"))
    with pytest.raises(BadRowError, match="a row asks for partition 7 of 't12-out'"):
        runs.run(spec)


@pytest.mark.parametrize(
    ("sql", "found"),
    [
        ("SELECT 'x' AS value FROM t13", "x"),
        ("SELECT id FROM (SELECT * EXCEPT (topic, _key) FROM t13)", '{"id":5}'),
        ("SELECT timestamp, page FROM t13", '{"timestamp":"t","page":"/p0"}'),
    ],
)
def test_columns_that_are_not_used_are_not_missed(runs: Runs, sql: str, found: str) -> None:
    if runs.node.run("topic", "describe", "t13").returncode != 0:
        runs.produce(runs.topic("t13", 1), [{"id": 5, "page": "/p0", "timestamp": "t", "key": 1}])
    source = "{topics: [t13], value: {format: json, schema: 'id BIGINT, page STRING, timestamp STRING, key INT'}}"
    name = f"unused-{len(sql)}"
    runs.run(runs.declare(name, transform(source, sql, name)))
    assert [row["value"].decode() for row in runs.rows(name)] == [found]


def test_only_columns_that_are_used_are_made(runs: Runs) -> None:
    runs.topic("t14", 1)
    spec = runs.declare("used", transform(CLICKS.replace("TOPIC", "t14"), "SELECT id FROM t14 WHERE offset > 5", "used"))
    rows = BatchRows(spec, runs.spark)
    assert rows.frame([]).columns == ["id"]
    assert [view.columns.names for view in rows.read_views()] == [["id", "offset"]]


def test_a_second_copy_fences_the_first(runs: Runs) -> None:
    topic = runs.topic("t8", 1)
    runs.produce(topic, [b"1"])
    body = transform("t8", "SELECT value FROM t8", "t8-out")
    spec = runs.declare("copy", body)
    first, second = make_job(spec), make_job(spec)
    first.start(runs.spark)
    second.start(runs.spark)
    with pytest.raises(PipelineFencedError, match=r"another copy of pipeline 'copy', started on .* has taken over"):
        first.step()
    done = second.step()
    assert done is not None
    assert done.rows_written == 1
    first.close()
    second.close()
    assert len(runs.rows("t8-out")) == 1


def test_a_topic_made_again_is_an_error_not_garbage(runs: Runs) -> None:
    topic = runs.topic("t9", 1)
    runs.produce(topic, [b"1", b"2"])
    body = transform("t9", "SELECT value FROM t9", "t9-out")
    spec = runs.declare("moved", body)
    runs.run(spec)
    runs.node.ok("topic", "delete", "t9", "-y")
    runs.topic("t9", 1)
    runs.produce(topic, [b"3", b"4", b"5"])
    with pytest.raises(ChangedInputError, match="topic 't9' was deleted and created again"):
        runs.run(spec)
    skipping = runs.declare("moved", body.replace("[t9]}", "[t9], lost_data: skip}"))
    runs.run(skipping)
    assert [row["value"] for row in runs.rows("t9-out")] == [b"1", b"2", b"3", b"4", b"5"]


def test_rows_that_retention_took_are_an_error(runs: Runs) -> None:
    topic = runs.topic("t10", 1)
    runs.produce(topic, [b"%d" % number for number in range(10)])
    body = transform("t10", "SELECT value FROM t10", "t10-out", "batch: {rows_max: 4}\n")
    spec = runs.declare("trimmed", body)
    job = make_job(spec)
    job.start(runs.spark)
    assert job.step() is not None
    job.close()
    runs.node.ok("topic", "trim", "t10", "--before", "8", "-y")
    with pytest.raises(DataLossError, match="t10-0 begins at offset 8, but was read only up to 4"):
        runs.run(spec)


def test_positions_follow_in_the_broker_and_vital_keeps_messages(runs: Runs) -> None:
    topic = runs.topic("t11", 1)
    runs.produce(topic, [b"1", b"2", b"3"])
    body = transform("t11", "SELECT value FROM t11", "t11-out")
    runs.run(runs.declare("vital", body + "vital: true\nconsumer: readers\n"))
    described = json.loads(runs.node.ok("group", "describe", "readers", "-o", "json"))
    assert '"t11"' in json.dumps(described)
    settings = json.loads(runs.node.ok("topic", "describe", "t11", "-o", "json"))
    assert "readers" in json.dumps(settings)


def test_a_simple_query_copies_keys_headers_partitions_and_nulls(runs: Runs) -> None:
    topic = runs.topic("t-copied", 2)
    producer = confluent_kafka.Producer({"bootstrap.servers": runs.node.bootstrap})
    producer.produce(topic, b"left out", partition=1)
    producer.produce(topic, b"v", key=b"k", headers=[("a", b"1"), ("b", None)], partition=1)
    producer.produce(topic, None, key=b"gone", partition=1)
    assert producer.flush(20) == 0
    sql = "SELECT value, key, headers, partition FROM source WHERE offset > 0"
    body = transform(f"{{topics: [{topic}], headers: true}}", sql, "t-copies, partitions: 3")
    state = runs.run(runs.declare("copied", body))
    columns = schema("partition", "key", "value", "headers")
    rows = read(runs.node.bootstrap, columns, subscribe="t-copies", includeHeaders="true")
    headers = [{"key": "a", "value": b"1"}, {"key": "b", "value": None}]
    assert [(row["partition"], row["key"], row["value"], row["headers"]) for row in rows] == [
        (1, b"k", b"v", headers),
        (1, b"gone", None, None),
    ]
    assert (state["rows_read"], state["rows_written"]) == (3, 2)


def test_rows_produced_during_a_batch_are_lag_when_it_ends(runs: Runs) -> None:
    topic = runs.topic("t-lag", 1)
    runs.produce(topic, [click(0)])
    source = TopicSource(runs.declare("lag", transform(topic, "SELECT * FROM source", "t-lag-out")))
    source.begin(None)
    ranges = source.next_ranges(1000)
    runs.produce(topic, [click(number) for number in range(3)])
    source.advance(ranges)
    source.close()
    assert source.lag_rows() == 3


def test_simple_queries_give_the_rows_that_spark_gives(runs: Runs) -> None:
    """Each is computed by Arrow in the tasks that read, and by Spark; what Arrow would compute otherwise is left to Spark."""
    topic = runs.topic("t-simple", 1)
    producer = confluent_kafka.Producer({"bootstrap.servers": runs.node.bootstrap})
    for number, key in enumerate([None, b"", b"a", b"b", b"\xff", b"a"]):
        producer.produce(topic, b"v%d" % number, key=key)
    assert producer.flush(20) == 0
    spec = runs.declare("simple", transform(topic, "SELECT key, value FROM source", "t-simple-out"))
    source = TopicSource(spec)
    source.begin(None)
    ranges = source.next_ranges(1000)
    rows = BatchRows(spec, runs.spark)
    [view] = rows.views
    frame = view.frame(runs.spark, ranges)
    batches = list(view.reading(ranges)(iter([pa.record_batch({"id": [0]})])))
    source.close()
    for condition in SIMPLE:
        query = simple_query(frame.where(condition).select("value", frame["key"].alias("k"), "offset"))
        assert query is not None, condition
        found = [row for batch in query.select(iter(batches)) for row in batch.to_pylist()]
        expected = [row.asDict() for row in frame.where(condition).selectExpr("value", "key AS k", "offset").collect()]
        assert [(row["offset"], row["value"], row["k"]) for row in found] == [
            (row["offset"], row["value"], row["k"]) for row in expected
        ], condition
        assert query.columns == (("value", "value"), ("k", "key"), ("offset", "offset"))
    for condition in FOR_SPARK:
        assert simple_query(frame.where(condition).select("value")) is None, condition
    assert simple_query(frame.selectExpr("upper(cast(value as string)) AS value")) is None
    assert simple_query(frame.union(frame).select("value")) is None
