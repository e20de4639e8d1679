"""Batch reads of topics: every option, every codec, and what is refused. Spark does not run; its calls are made as it does."""

from __future__ import annotations

import json
import threading
import warnings
from datetime import UTC, datetime
from typing import Any

import confluent_kafka
import pytest
from pyspark.sql.types import DoubleType, IntegerType, LongType, StringType, StructField, StructType, TimestampType

from penstock.core.errors import PenstockError
from penstock.kafka.client import BrokerUnreachableError, RequestRefusedError
from penstock.spark.errors import DataLossError, MalformedValueError, OptionError
from penstock.spark.options import COLUMNS
from tests.e2e.kafka.running_gateway import RunningGateway
from tests.spark.reads import batch_reader, produce, read, rows_of, schema, source, values

with warnings.catch_warnings():
    # The client uses what newer Pythons want to be rid of; that is theirs to mend.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka

TEN: list[bytes | None] = [b"value %d" % number for number in range(10)]


def test_rows_have_the_columns_of_the_kafka_source(gateway: RunningGateway, topic: str) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": gateway.bootstrap})
    producer.produce(topic, b"v", b"k", 1, timestamp=1_700_000_000_123, headers=[("a", b"1"), ("b", None)])
    producer.produce(topic, None, None, 1, timestamp=1_700_000_000_124)
    assert producer.flush(20) == 0
    columns = schema(*COLUMNS)
    first, second = read(gateway.bootstrap, columns, subscribe=topic, includeHeaders=True)
    assert first == {
        "key": b"k",
        "value": b"v",
        "topic": topic,
        "partition": 1,
        "offset": 0,
        "timestamp": datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=UTC),
        "timestampType": 0,
        "headers": [{"key": "a", "value": b"1"}, {"key": "b", "value": None}],
    }
    assert (second["key"], second["value"], second["headers"], second["offset"]) == (None, None, None, 1)


def test_the_schema_is_what_the_options_ask_for() -> None:
    assert source("h:1", subscribe="t").schema() == (
        "`key` BINARY, `value` BINARY, `topic` STRING, `partition` INT, `offset` BIGINT, `timestamp` TIMESTAMP, "
        "`timestampType` INT"
    )
    assert source("h:1", subscribe="t", columns="offset,value").schema() == "`offset` BIGINT, `value` BINARY"
    decoded = source("h:1", subscribe="t", columns="value", valueFormat="json", valueSchema="id INT").schema()
    assert decoded == "`value` STRUCT<id INT>"


def test_only_columns_that_are_asked_for_are_made(gateway: RunningGateway, topic: str) -> None:
    produce(gateway.bootstrap, topic, TEN[:2])
    assert read(gateway.bootstrap, schema("offset"), subscribe=topic) == [{"offset": 0}, {"offset": 1}]
    assert read(gateway.bootstrap, schema("value", "topic"), subscribe=topic)[0] == {"value": TEN[0], "topic": topic}


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_is_read(gateway: RunningGateway, topic: str, codec: str) -> None:
    many: list[bytes | None] = [b"%d " % number * 30 for number in range(3000)]
    produce(gateway.bootstrap, topic, many, compression_type=codec)
    assert values(read(gateway.bootstrap, subscribe=topic)) == many


def test_snappy_in_javas_framing_is_read(gateway: RunningGateway, topic: str) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=gateway.bootstrap, compression_type="snappy", linger_ms=50)
    many = [b"%d " % number * 500 for number in range(200)]
    for value in many:
        producer.send(topic, value, partition=0)
    producer.close()
    assert values(read(gateway.bootstrap, subscribe=topic)) == many


def test_a_record_larger_than_a_record_batch_is_meant_to_be_is_read(gateway: RunningGateway) -> None:
    topic = "large"
    gateway.create_topic(topic)
    large = bytes(900_000)
    produce(gateway.bootstrap, topic, [b"a", large, b"b"], message_max_bytes=1_000_000)
    found = read(gateway.bootstrap, subscribe=topic, kafka_max_partition_fetch_bytes=1000)
    assert values(found) == [b"a", large, b"b"]


def test_all_partitions_of_all_topics_are_read(gateway: RunningGateway) -> None:
    for name, partitions in (("many.a", 2), ("many.b", 1), ("other", 1)):
        gateway.create_topic(name, partitions)
        for partition in range(partitions):
            produce(gateway.bootstrap, name, [f"{name}-{partition}".encode()], partition=partition)
    named = read(gateway.bootstrap, subscribe="many.a, many.b")
    assert values(named) == [b"many.a-0", b"many.a-1", b"many.b-0"]
    assert read(gateway.bootstrap, subscribePattern=r"many\..*") == named
    assert values(read(gateway.bootstrap, assign='{"many.a":[1],"other":[0]}')) == [b"many.a-1", b"other-0"]


def test_offsets_bound_what_is_read(gateway: RunningGateway, topic: str) -> None:
    produce(gateway.bootstrap, topic, TEN)
    produce(gateway.bootstrap, topic, TEN, partition=1)
    starting = json.dumps({topic: {"0": 3, "1": -2}})
    ending = json.dumps({topic: {"0": 5, "1": -1}})
    found = read(gateway.bootstrap, subscribe=topic, startingOffsets=starting, endingOffsets=ending)
    assert values(found) == TEN[3:5] + TEN


@pytest.mark.parametrize(
    ("offsets", "message"),
    [('{"0": 1}', r"-1 are missing"), ('{"0": 1, "1": 1, "2": 1}', r"-2 are not read")],
)
def test_offsets_must_name_every_partition(gateway: RunningGateway, topic: str, offsets: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        read(gateway.bootstrap, subscribe=topic, startingOffsets=json.dumps({topic: json.loads(offsets)}))


def test_times_bound_what_is_read(gateway: RunningGateway, topic: str) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": gateway.bootstrap})
    for number, value in enumerate(TEN):
        producer.produce(topic, value, partition=0, timestamp=1000 + number)
        producer.produce(topic, value, partition=1, timestamp=1000 + number)
    assert producer.flush(20) == 0
    assert values(read(gateway.bootstrap, subscribe=topic, startingTimestamp=1004, endingTimestamp=1006)) == TEN[4:6] * 2
    # Nothing is as late as that: to the end.
    assert values(read(gateway.bootstrap, subscribe=topic, startingTimestamp=1008, endingTimestamp=9999)) == TEN[8:] * 2
    starting, ending = json.dumps({topic: {"0": 1002, "1": 1009}}), json.dumps({topic: {"0": 1003, "1": 9999}})
    found = read(gateway.bootstrap, subscribe=topic, startingOffsetsByTimestamp=starting, endingOffsetsByTimestamp=ending)
    assert values(found) == [TEN[2], TEN[9]]


def test_a_beginning_later_than_everything_is_an_error_unless_told_otherwise(gateway: RunningGateway, topic: str) -> None:
    produce(gateway.bootstrap, topic, TEN)
    later = 99_999_999_999_999
    with pytest.raises(OptionError, match="startingOffsetsByTimestampStrategy"):
        read(gateway.bootstrap, subscribe=topic, startingTimestamp=later)
    assert read(gateway.bootstrap, subscribe=topic, startingTimestamp=later, startingOffsetsByTimestampStrategy="latest") == []


def test_a_partition_is_cut_for_as_many_tasks_as_asked(gateway: RunningGateway, topic: str) -> None:
    produce(gateway.bootstrap, topic, TEN)
    cases: list[tuple[dict[str, Any], int]] = [({"minPartitions": 5}, 5), ({"maxRecordsPerPartition": 3}, 4), ({}, 1)]
    for options, tasks in cases:
        reader = batch_reader(gateway.bootstrap, subscribe=topic, **options)
        partitions = reader.partitions()
        assert len(partitions) == tasks
        assert values(rows_of(reader, partitions)) == TEN


def test_an_empty_topic_has_no_rows(gateway: RunningGateway, topic: str) -> None:
    assert read(gateway.bootstrap, subscribe=topic) == []


@pytest.mark.parametrize("options", [{"subscribe": "no-such"}, {"assign": '{"no-such":[0]}'}])
def test_a_topic_that_does_not_exist_is_named(gateway: RunningGateway, options: dict[str, Any]) -> None:
    with pytest.raises(RequestRefusedError, match="topic 'no-such': UNKNOWN_TOPIC_OR_PARTITION; there is no such topic"):
        read(gateway.bootstrap, **options)


def test_a_partition_that_does_not_exist_is_named(gateway: RunningGateway, topic: str) -> None:
    with pytest.raises(OptionError, match=f"assign names {topic}-7, which do not exist; the topics have {topic}-0, {topic}-1"):
        read(gateway.bootstrap, assign=json.dumps({topic: [7]}))


def test_a_pattern_that_matches_nothing_reads_nothing(gateway: RunningGateway) -> None:
    assert read(gateway.bootstrap, subscribePattern="nothing-.*") == []


@pytest.mark.parametrize(
    "bounds", [{"startingOffsets": 0}, {"startingOffsets": 11}, {"endingOffsets": 12}], ids=["trimmed", "after the end", "end"]
)
def test_offsets_that_are_not_there_are_data_loss(gateway: RunningGateway, bounds: dict[str, int]) -> None:
    topic = f"trimmed-{next(iter(bounds.values()))}"
    made = gateway.create_topic(topic)
    produce(gateway.bootstrap, topic, TEN)
    gateway.run(gateway.broker.partition(made, 0).trim(4))
    options: dict[str, Any] = {name: json.dumps({topic: {"0": offset}}) for name, offset in bounds.items()}
    with pytest.raises(DataLossError, match=r"which has 4 up to 10\. Set failOnDataLoss to false"):
        read(gateway.bootstrap, subscribe=topic, **options)
    expected = [] if bounds.get("startingOffsets") == 11 else TEN[4:]
    assert values(read(gateway.bootstrap, subscribe=topic, failOnDataLoss=False, **options)) == expected


def test_records_trimmed_between_planning_and_reading_are_data_loss(gateway: RunningGateway) -> None:
    made = gateway.create_topic("trimmed-late")
    produce(gateway.bootstrap, "trimmed-late", TEN)
    failing = batch_reader(gateway.bootstrap, subscribe="trimmed-late")
    lenient = batch_reader(gateway.bootstrap, subscribe="trimmed-late", failOnDataLoss=False)
    planned = failing.partitions()
    gateway.run(gateway.broker.partition(made, 0).trim(7))
    with pytest.raises(DataLossError, match="offsets 0 to 6 of trimmed-late-0 are gone: the partition has 7 up to 10"):
        rows_of(failing, planned)
    assert values(rows_of(lenient, planned)) == TEN[7:]


def test_a_topic_made_again_between_planning_and_reading_is_data_loss(gateway: RunningGateway) -> None:
    gateway.create_topic("again")
    produce(gateway.bootstrap, "again", TEN)
    failing = batch_reader(gateway.bootstrap, subscribe="again")
    lenient = batch_reader(gateway.bootstrap, subscribe="again", failOnDataLoss=False)
    planned = failing.partitions()
    gateway.run(gateway.broker.delete_topic("again"))
    gateway.create_topic("again")
    produce(gateway.bootstrap, "again", [b"new"] * 10)
    with pytest.raises(DataLossError, match="topic 'again' was deleted and created again"):
        rows_of(failing, planned)
    assert rows_of(lenient, planned) == []


def test_a_broker_that_restarts_is_waited_for(gateway: RunningGateway, topic: str) -> None:
    produce(gateway.bootstrap, topic, TEN)
    reader = batch_reader(gateway.bootstrap, subscribe=topic)
    planned = reader.partitions()
    assert values(rows_of(reader, planned)) == TEN  # a connection that the restart breaks is open now
    gateway.restart()
    assert values(rows_of(reader, planned)) == TEN


def test_a_broker_that_is_not_there_is_named(topic: str) -> None:
    with pytest.raises(BrokerUnreachableError, match=r"cannot connect to 127\.0\.0\.1:1: .*kafka\.bootstrap\.servers"):
        read("127.0.0.1:1", subscribe=topic, kafka_default_api_timeout_ms=200)


def test_a_schema_with_other_columns_is_refused() -> None:
    with pytest.raises(OptionError, match="the schema has a column 'name'; there are key, value"):
        batch_reader("h:1", StructType([StructField("name", StringType())]), subscribe="t")
    with pytest.raises(OptionError, match="column offset is bigint; the schema has string"):
        batch_reader("h:1", StructType([StructField("offset", StringType())]), subscribe="t")


PERSON = StructType(
    [
        StructField("id", LongType()),
        StructField("name", StringType()),
        StructField("score", DoubleType()),
        StructField("at", TimestampType()),
        StructField("inner", StructType([StructField("x", IntegerType())])),
    ]
)


def test_json_values_become_columns(gateway: RunningGateway, topic: str) -> None:
    texts: list[bytes | None] = [
        b'{"id": 1, "name": "ann", "score": 1.5, "at": "2026-01-02T03:04:05Z", "inner": {"x": 7}, "more": [1]}',
        None,
        b'{\n "name":\n "bob"\n}',
        b"{}",
    ]
    produce(gateway.bootstrap, topic, texts)
    found = values(read(gateway.bootstrap, schema("value", "offset", value=PERSON), subscribe=topic, valueFormat="json"))
    nothing = {"id": None, "name": None, "score": None, "at": None, "inner": None}
    ann = {"id": 1, "name": "ann", "score": 1.5, "at": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), "inner": {"x": 7}}
    assert found == [ann, None, {**nothing, "name": "bob"}, nothing]


BAD = [b"", b" ", b"{", b'{"id": 1}{"id": 2}', b'{"id": "x"}', b"5", b'{"id": 1}} {"v": {}', b"\xff"]


@pytest.mark.parametrize("bad", BAD)
def test_a_value_that_is_not_json_is_null_or_an_error_that_names_it(gateway: RunningGateway, topic: str, bad: bytes) -> None:
    good: list[bytes | None] = [b'{"id": %d}' % number for number in range(9)]
    produce(gateway.bootstrap, topic, [*good[:5], bad, *good[5:]])
    columns = schema("value", "offset", value=StructType([StructField("id", LongType())]))
    found = read(gateway.bootstrap, columns, subscribe=topic, valueFormat="json")
    expected = [{"id": number} for number in range(9)]
    assert values(found) == [*expected[:5], None, *expected[5:]]
    with pytest.raises(MalformedValueError, match="the value at offset 5 is not JSON"):
        read(gateway.bootstrap, columns, subscribe=topic, valueFormat="json", onMalformed="fail")


def test_avro_values_become_columns(gateway: RunningGateway, topic: str) -> None:
    fields = [{"name": "id", "type": "long"}, {"name": "name", "type": ["null", "string"]}]
    written = json.dumps({"type": "record", "name": "Person", "fields": fields})
    produce(gateway.bootstrap, topic, [b"\x0e\x02\x06ann", None, b"\x0e\0", b"\x0e"])
    people = StructType([StructField("id", LongType()), StructField("name", StringType())])
    options: dict[str, Any] = {"subscribe": topic, "valueFormat": "avro", "valueSchema": written}
    assert source(gateway.bootstrap, columns="value", **options).schema() == "`value` STRUCT<`id`: BIGINT, `name`: STRING>"
    found = values(read(gateway.bootstrap, schema("value", "offset", value=people), **options))
    assert found == [{"id": 7, "name": "ann"}, None, {"id": 7, "name": None}, None]


@pytest.mark.parametrize("how", ["null", "fail"])
def test_framed_values_without_a_registry_are_an_error_that_names_the_framing(
    gateway: RunningGateway, topic: str, how: str
) -> None:
    produce(gateway.bootstrap, topic, [b"\0\0\0\0\7" + b'{"id": 1}'] * 3)
    columns = schema("value", "offset", value=StructType([StructField("id", LongType())]))
    with pytest.raises(MalformedValueError, match="Confluent's serializers write with schema 7 of a registry"):
        read(gateway.bootstrap, columns, subscribe=topic, valueFormat="json", onMalformed=how)
    produce(gateway.bootstrap, topic, [b'{"id": 2}'])
    if how == "null":
        found = values(read(gateway.bootstrap, columns, subscribe=topic, valueFormat="json", onMalformed=how))
        assert found == [None, None, None, {"id": 2}]


def test_values_are_decoded_only_to_a_struct() -> None:
    with pytest.raises(OptionError, match="decodes values to a struct"):
        batch_reader("h:1", schema(), subscribe="t", valueFormat="json")
    with pytest.raises(OptionError, match="give valueSchema"):
        source("h:1", subscribe="t", valueFormat="json").schema()


def test_errors_of_the_source_have_stable_codes() -> None:
    codes = {one.code for one in (OptionError, DataLossError, BrokerUnreachableError, MalformedValueError)}
    assert codes == {"spark_option", "data_loss", "broker_unreachable", "malformed_value"}
    assert all(issubclass(one, PenstockError) for one in (OptionError, DataLossError))


def test_a_task_that_is_given_up_leaves_nothing_behind(gateway: RunningGateway, topic: str) -> None:
    produce(gateway.bootstrap, topic, [bytes(1000)] * 5000)
    reader = batch_reader(gateway.bootstrap, subscribe=topic, direct=False, kafka_fetch_max_bytes=100_000)
    rows = reader.read(reader.partitions()[0])
    threads = threading.active_count()
    next(rows)
    rows.close()  # type: ignore[attr-defined] # it is a generator, and Spark closes it
    assert threading.active_count() <= threads
    assert len(read(gateway.bootstrap, subscribe=topic, direct=False)) == 5000
