"""An audit agrees with what an export made, and finds what was done to it since."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.spark.pipelines.errors import SpecError
from penstock.spark.tables.audit_report import spans
from penstock.spark.tables.errors import AuditDifferenceError
from penstock.spark.tables.row_digest import column_digests
from penstock.spark.tables.table import table_of
from tests.e2e.kafka.running_gateway import RunningGateway
from tests.spark.pipelines.table_pipelines import FORMATS, audit, click, declare, run, send
from tests.spark.reads import produce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.spark.pipelines.spec import PipelineSpec

pytestmark = pytest.mark.slow

Change = Callable[[pa.Table], pa.Table]


def rewrite(spec: PipelineSpec, change: Change) -> None:
    """Do something to the rows of a table behind everybody's back."""
    assert spec.target.table is not None
    table = table_of(spec, spec.target.table)
    table.refresh()
    reader, old = table.reader(), table.data_files()
    rows = pa.Table.from_batches([batch for file in old for batch in reader.read(file)])
    before = table.progress()
    assert before is not None
    files = table.writer().write(change(rows).to_batches(), "by-hand")
    table.commit(files, replace(before, batch=before.batch + 1), before, removed=old)


def is_at(rows: pa.Table, partition: int, offset: int) -> Any:
    return pc.and_(pc.equal(rows["_partition"], partition), pc.equal(rows["_offset"], offset))


@pytest.mark.parametrize("form", FORMATS)
def test_an_audit_agrees_and_then_finds_a_row_that_was_removed_by_hand(
    spark: SparkSession, gateway: RunningGateway, topic: str, tmp_path: Path, *, form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = declare(gateway.bootstrap, tmp_path, topic, form, batch={"rows_max": 150})
    send(gateway.bootstrap, topic, range(200))
    produce(gateway.bootstrap, topic, [b"bad"])
    run(spark, spec)
    send(gateway.bootstrap, topic, range(200, 210))  # not exported yet, and not missed
    assert "topic and table agree: 200 records, each once" in audit(spark, spec)
    told = capsys.readouterr().out
    assert "1 records cannot be decoded" in told
    assert "cannot be decoded, and are not expected: 1 offsets: " in told
    rewrite(spec, lambda rows: rows.filter(pc.invert(is_at(rows, 1, 42))))
    with pytest.raises(AuditDifferenceError, match=r"(?s)-1: differs.*missing in the table: 1 offsets: 42"):
        audit(spark, spec)


def test_an_audit_tells_doubled_and_different_rows_and_their_columns(
    spark: SparkSession, gateway: RunningGateway, topic: str, tmp_path: Path
) -> None:
    spec = declare(gateway.bootstrap, tmp_path, topic, "delta")
    send(gateway.bootstrap, topic, range(100))
    run(spark, spec)

    def spoil(rows: pa.Table) -> pa.Table:
        twice = rows.filter(is_at(rows, 0, 7))
        page = pc.if_else(is_at(rows, 1, 9), "/other", rows["page"])
        offset = pc.if_else(is_at(rows, 0, 20), 5000, rows["_offset"])
        changed = rows.set_column(rows.schema.get_field_index("page"), "page", page)
        changed = changed.set_column(rows.schema.get_field_index("_offset"), "_offset", offset)
        return pa.concat_tables([changed, twice])

    rewrite(spec, spoil)
    with pytest.raises(AuditDifferenceError) as found:
        audit(spark, spec)
    report = str(found.value)
    assert "doubled in the table: 1 offsets: 7" in report
    assert "missing in the table: 1 offsets: 20" in report
    assert "different at offset 9: page" in report
    assert "1 rows of the table are older than the topic, or newer" in report
    assert "2 of 2 partitions differ" in report


def test_what_retention_has_taken_from_the_topic_is_not_held_against_the_table(
    spark: SparkSession, gateway: RunningGateway, topic: str, tmp_path: Path
) -> None:
    spec = declare(gateway.bootstrap, tmp_path, topic, "parquet")
    send(gateway.bootstrap, topic, range(100))
    run(spark, spec)
    admin = AdminClient({"bootstrap.servers": gateway.bootstrap})
    for one in admin.delete_records([TopicPartition(topic, 0, 30)]).values():
        one.result(20)
    report = audit(spark, spec)
    assert f"{topic}-0: agrees; offsets 30 to 49: 20 records, 20 rows" in report
    assert "30 rows of the table are older" in report


@pytest.mark.parametrize("policy", ["compact", "delete"])
def test_rows_that_only_the_table_has_are_no_difference_where_the_topic_is_compacted(
    spark: SparkSession, gateway: RunningGateway, tmp_path: Path, policy: str
) -> None:
    topic = f"cleaned-{policy}"
    wanted = NewTopic(topic, num_partitions=1, config={"cleanup.policy": policy})
    admin = AdminClient({"bootstrap.servers": gateway.bootstrap})
    admin.create_topics([wanted])[topic].result(20)
    producer = Producer({"bootstrap.servers": gateway.bootstrap, "transactional.id": topic})
    producer.init_transactions(20)
    for number in range(3):
        producer.begin_transaction()
        producer.produce(topic, key=str(number), value=click(number))
        # The mark of an aborted or committed transaction takes an offset that no row has.
        producer.abort_transaction(20) if number == 1 else producer.commit_transaction(20)
    spec = declare(gateway.bootstrap, tmp_path, topic, "delta")
    run(spark, spec)
    assert "agree: 2 records" in audit(spark, spec)

    def add(rows: pa.Table) -> pa.Table:
        one = rows.filter(is_at(rows, 0, 0))
        return pa.concat_tables([rows, one.set_column(rows.schema.get_field_index("_offset"), "_offset", pa.array([1]))])

    rewrite(spec, add)
    if policy == "compact":
        assert "only in the table: 1 offsets, compaction has removed them from the topic: 1" in audit(spark, spec)
    else:
        with pytest.raises(AuditDifferenceError, match="only in the table: 1 offsets, the topic has no such records: 1"):
            audit(spark, spec)


def test_a_table_without_offsets_cannot_be_audited(
    spark: SparkSession, gateway: RunningGateway, topic: str, tmp_path: Path
) -> None:
    spec = declare(gateway.bootstrap, tmp_path, topic, "parquet", table={"metadata": "none"})
    send(gateway.bootstrap, topic, range(10))
    run(spark, spec)
    with pytest.raises(SpecError, match="has no _partition and _offset"):
        audit(spark, spec)
    missing = replace(spec, target=replace(spec.target, table=replace(spec.target.table, location="nowhere")))  # type: ignore[type-var]
    with pytest.raises(SpecError, match="there is no parquet table"):
        audit(spark, missing)


KINDS = pa.struct([("x", pa.int32()), ("l", pa.list_(pa.string())), ("m", pa.map_(pa.string(), pa.int64()))])
VALUES = {
    "strings": pa.array(["", "a", "ab", None, "ba", "a" * 1000]),
    "numbers": pa.array([0, 1, -1, None, 1 << 40, 7]),
    "floats": pa.array([0.0, 1.5, -1.5, None, float("nan"), 1e300]),
    "flags": pa.array([True, False, None, True, False, True]),
    "times": pa.array([0, 1, None, 3, 4, 5], pa.timestamp("us", "UTC")),
    "days": pa.array([0, 1, None, 3, 4, 5], pa.date32()),
    "decimals": pa.array([None, 1, 2, 3, 4, 5]).cast(pa.decimal128(25, 2)),
    "nested": pa.array(
        [
            {"x": 1, "l": ["a", "b"], "m": [("k", 1)]},
            {"x": 1, "l": ["ab"], "m": []},
            None,
            {"x": None, "l": None, "m": None},
            {"x": 1, "l": ["b", "a"], "m": [("k", 2)]},
            {"x": 1, "l": [], "m": [("k", 1), ("l", 1)]},
        ],
        KINDS,
    ),
}


@pytest.mark.parametrize("name", VALUES)
def test_a_digest_depends_on_the_value_alone(name: str) -> None:
    column = VALUES[name]
    whole = column_digests(column)
    assert np.array_equal(whole, np.concatenate([column_digests(column.slice(row, 1)) for row in range(len(column))]))
    assert np.array_equal(whole[2:5], column_digests(column.slice(2, 3)))
    distinct = 2 + 1 if name == "flags" else len(column)
    assert len(set(whole.tolist())) == distinct


def test_offsets_are_told_as_a_person_would() -> None:
    assert spans([9, 3, 7, 8]) == "3, 7-9"
    assert spans(range(0, 100, 2)).endswith("and 30 more stretches")
