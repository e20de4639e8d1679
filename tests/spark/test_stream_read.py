"""Streams of topics, micro-batch by micro-batch, called as Spark calls them; and what happens when topics change under them."""

from __future__ import annotations

import json
import logging
from typing import Any

import confluent_kafka
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from penstock.core.errors import PenstockError
from penstock.spark.errors import CheckpointError, DataLossError, OptionError
from penstock.spark.source import PenstockStreamReader
from tests.e2e.kafka.running_gateway import RunningGateway
from tests.spark.reads import produce, rows_of, schema, source, stream_reader, values

TEN: list[bytes | None] = [b"value %d" % number for number in range(10)]

Offset = dict[str, Any]


class Query:
    """A stream as Spark runs it: the offsets of its last batch are in the checkpoint, as JSON."""

    def __init__(self, bootstrap: str, checkpoint: Offset | None = None, *, now: bool = False, **options: Any) -> None:
        self.reader: PenstockStreamReader = stream_reader(bootstrap, **options)
        try:
            self.checkpoint = self.reader.initialOffset() if checkpoint is None else checkpoint
        except PenstockError:
            self.reader.stop()  # as Spark does
            raise
        if now:
            self.reader.prepareForTriggerAvailableNow()
        self._limit = self.reader.getDefaultReadLimit()

    def batch(self) -> list[Any]:
        """The values of the next micro-batch; none if there is nothing new."""
        start = json.loads(json.dumps(self.checkpoint))
        end = json.loads(json.dumps(self.reader.latestOffset(start, self._limit)))
        if end == start:
            return []
        found = values(rows_of(self.reader, self.reader.partitions(start, end)))
        self.reader.commit(end)
        self.checkpoint = end
        return found

    def stop(self) -> Offset:
        """End it; what its checkpoint has."""
        self.reader.stop()
        return self.checkpoint


def test_a_stream_begins_at_the_end_unless_told_otherwise(gateway: RunningGateway, topic: str) -> None:
    produce(gateway.bootstrap, topic, TEN)
    query, everything = (
        Query(gateway.bootstrap, subscribe=topic),
        Query(gateway.bootstrap, subscribe=topic, startingOffsets="earliest"),
    )
    assert query.batch() == []
    assert everything.batch() == TEN
    produce(gateway.bootstrap, topic, [b"new"], partition=1)
    assert query.batch() == everything.batch() == [b"new"]
    assert query.batch() == []
    query.stop()
    everything.stop()


def test_a_restart_goes_on_where_the_checkpoint_is(gateway: RunningGateway, topic: str) -> None:
    produce(gateway.bootstrap, topic, TEN)
    checkpoint = Query(gateway.bootstrap, subscribe=topic).stop()
    produce(gateway.bootstrap, topic, [b"new"])
    query = Query(gateway.bootstrap, checkpoint, subscribe=topic)
    assert query.batch() == [b"new"]
    query.stop()


def test_a_batch_that_was_planned_before_a_restart_is_the_same_after_it(gateway: RunningGateway, topic: str) -> None:
    query = Query(gateway.bootstrap, subscribe=topic, startingOffsets="earliest")
    produce(gateway.bootstrap, topic, TEN)
    planned = query.reader.latestOffset(query.checkpoint, ReadAllAvailable())
    query.stop()
    produce(gateway.bootstrap, topic, [b"later"])
    after = stream_reader(gateway.bootstrap, subscribe=topic)
    assert values(rows_of(after, after.partitions(query.checkpoint, planned))) == TEN
    after.stop()


def test_a_first_batch_that_was_planned_before_a_restart_begins_where_it_did(gateway: RunningGateway, topic: str) -> None:
    produce(gateway.bootstrap, topic, [b"old"])
    query = Query(gateway.bootstrap, subscribe=topic)
    produce(gateway.bootstrap, topic, TEN)
    assert query.reader.initialOffset() == query.checkpoint  # however often it is asked
    planned = query.reader.latestOffset(query.checkpoint, ReadAllAvailable())
    query.stop()
    produce(gateway.bootstrap, topic, [b"later"])
    # Spark has stored where the batch ends, and asks again where it begins.
    after = stream_reader(gateway.bootstrap, subscribe=topic)
    assert values(rows_of(after, after.partitions(after.initialOffset(), planned))) == TEN
    end = after.latestOffset(planned, ReadAllAvailable())
    assert values(rows_of(after, after.partitions(planned, end))) == [b"later"]
    assert after.latestOffset(end, ReadAllAvailable()) == end
    after.stop()


def test_batches_are_as_large_as_asked(gateway: RunningGateway, topic: str) -> None:
    for partition in range(2):
        produce(gateway.bootstrap, topic, TEN, partition=partition)
    query = Query(gateway.bootstrap, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=8)
    sizes = [len(query.batch()) for _ in range(4)]
    assert sizes == [8, 8, 4, 0]
    query.stop()


def test_once_reads_everything_whatever_the_limit(gateway: RunningGateway, topic: str) -> None:
    produce(gateway.bootstrap, topic, TEN)
    query = Query(gateway.bootstrap, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=3)
    end = query.reader.latestOffset(query.checkpoint, ReadAllAvailable())
    assert end[topic]["0"] == 10
    query.stop()


def test_too_little_is_waited_for_up_to_a_time(gateway: RunningGateway, topic: str) -> None:
    options: dict[str, Any] = {"subscribe": topic, "startingOffsets": "earliest", "minOffsetsPerTrigger": 5}
    query = Query(gateway.bootstrap, **options)
    assert query.reader.getDefaultReadLimit() == ReadMinRows(5)
    produce(gateway.bootstrap, topic, TEN[:1])
    assert query.batch() == TEN[:1]  # the first batch waits for nothing
    produce(gateway.bootstrap, topic, TEN[1:3])
    assert query.batch() == []
    produce(gateway.bootstrap, topic, TEN[3:6])
    assert query.batch() == TEN[1:6]
    impatient = Query(gateway.bootstrap, query.stop(), **options, maxTriggerDelay="1ms", maxOffsetsPerTrigger=7)
    assert impatient.reader.getDefaultReadLimit() == ReadMaxRows(7)
    assert impatient.batch() == []
    produce(gateway.bootstrap, topic, TEN[6:7])
    assert impatient.batch() == TEN[6:7]
    impatient.stop()


def test_available_now_ends_at_what_there_was(gateway: RunningGateway, topic: str) -> None:
    produce(gateway.bootstrap, topic, TEN)
    options: dict[str, Any] = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": 4, "now": True}
    query = Query(gateway.bootstrap, **options)
    produce(gateway.bootstrap, topic, [b"later"])
    assert [query.batch() for _ in range(4)] == [TEN[:4], TEN[4:8], TEN[8:], []]
    again = Query(gateway.bootstrap, query.stop(), **options)
    assert [again.batch() for _ in range(2)] == [[b"later"], []]
    again.stop()


def test_partitions_that_are_added_are_read_from_their_beginning(gateway: RunningGateway, topic: str) -> None:
    query = Query(gateway.bootstrap, subscribe=topic)
    gateway.run(gateway.broker.add_partitions(topic, 4))
    produce(gateway.bootstrap, topic, TEN, partition=3)
    assert query.batch() == TEN
    produce(gateway.bootstrap, topic, [b"more"], partition=3)
    assert query.batch() == [b"more"]
    query.stop()


def test_a_limit_counts_partitions_that_are_new(gateway: RunningGateway, topic: str) -> None:
    query = Query(gateway.bootstrap, subscribe=topic, maxOffsetsPerTrigger=4)
    gateway.run(gateway.broker.add_partitions(topic, 3))
    produce(gateway.bootstrap, topic, TEN, partition=2)
    assert [query.batch() for _ in range(3)] == [TEN[:4], TEN[4:8], TEN[8:]]
    query.stop()


def test_topics_that_come_to_match_a_pattern_are_read(gateway: RunningGateway) -> None:
    gateway.create_topic("pattern-1")
    query = Query(gateway.bootstrap, subscribePattern="pattern-.*")
    gateway.create_topic("pattern-2")
    produce(gateway.bootstrap, "pattern-2", TEN)
    assert query.batch() == TEN
    query.stop()


def test_the_position_of_a_consumer_is_kept_in_the_broker(gateway: RunningGateway, topic: str) -> None:
    query = Query(gateway.bootstrap, subscribe=topic, consumer="pipeline")
    produce(gateway.bootstrap, topic, TEN, partition=1)
    assert query.batch() == TEN
    consumer = confluent_kafka.Consumer({"bootstrap.servers": gateway.bootstrap, "group.id": "pipeline"})
    found = consumer.committed([confluent_kafka.TopicPartition(topic, number) for number in range(2)], timeout=20)
    consumer.close()
    assert [one.offset for one in found] == [0, 10]
    query.stop()


def test_the_latest_offset_is_reported(gateway: RunningGateway, topic: str) -> None:
    query = Query(gateway.bootstrap, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=1)
    assert query.reader.reportLatestOffset() is None
    produce(gateway.bootstrap, topic, TEN)
    query.batch()
    latest = query.reader.reportLatestOffset()
    assert latest is not None
    assert latest[topic] == {"0": 10, "1": 0}
    query.stop()


def test_a_checkpoint_of_another_topic_is_refused(gateway: RunningGateway, topic: str) -> None:
    gateway.create_topic("elsewhere")
    checkpoint = Query(gateway.bootstrap, subscribe="elsewhere").stop()
    query = Query(gateway.bootstrap, checkpoint, subscribe=topic, failOnDataLoss=False)
    with pytest.raises(CheckpointError, match=f"belongs to a query on elsewhere, this one reads {topic}; use another"):
        query.batch()
    query.stop()


@pytest.mark.parametrize("grown", [False, True], ids=["shorter", "longer than before"])
def test_a_topic_that_is_made_again_is_data_loss(gateway: RunningGateway, grown: bool, caplog: pytest.LogCaptureFixture) -> None:
    name = f"made-again-{grown}"
    gateway.create_topic(name)
    produce(gateway.bootstrap, name, TEN)
    checkpoint = Query(gateway.bootstrap, subscribe=name).stop()
    gateway.run(gateway.broker.delete_topic(name))
    gateway.create_topic(name)
    fresh: list[bytes | None] = [b"new"] * (20 if grown else 3)
    produce(gateway.bootstrap, name, fresh)
    query = Query(gateway.bootstrap, checkpoint, subscribe=name)
    with pytest.raises(DataLossError, match=f"topic '{name}' was deleted and created again"):
        query.batch()
    query.stop()
    lenient = Query(gateway.bootstrap, checkpoint, subscribe=name, failOnDataLoss=False)
    with caplog.at_level(logging.WARNING):
        assert lenient.batch() == fresh
    assert "was deleted and created again" in caplog.text
    assert lenient.batch() == []
    lenient.stop()


def test_a_topic_that_is_deleted_is_data_loss(gateway: RunningGateway, topic: str) -> None:
    gateway.create_topic("deleted")
    produce(gateway.bootstrap, topic, TEN)
    options: dict[str, Any] = {"subscribe": f"deleted,{topic}", "startingOffsets": "earliest"}
    checkpoint = Query(gateway.bootstrap, **options).stop()
    gateway.run(gateway.broker.delete_topic("deleted"))
    query = Query(gateway.bootstrap, checkpoint, **options)
    with pytest.raises(DataLossError, match="do not exist any more: deleted-0 from offset 0 on"):
        query.batch()
    query.stop()
    lenient = Query(gateway.bootstrap, checkpoint, **options, failOnDataLoss=False)
    assert lenient.batch() == TEN
    lenient.stop()


def test_records_that_retention_removed_are_data_loss(gateway: RunningGateway) -> None:
    made = gateway.create_topic("retained")
    options: dict[str, Any] = {"subscribe": "retained"}
    checkpoint = Query(gateway.bootstrap, **options).stop()
    produce(gateway.bootstrap, "retained", TEN)
    gateway.run(gateway.broker.partition(made, 0).trim(6))
    query = Query(gateway.bootstrap, checkpoint, **options)
    with pytest.raises(DataLossError, match="offsets 0 to 5 of retained-0 are gone"):
        query.batch()
    query.stop()
    lenient = Query(gateway.bootstrap, checkpoint, **options, failOnDataLoss=False)
    assert lenient.batch() == TEN[6:]
    lenient.stop()


def test_a_stream_on_a_topic_that_does_not_exist_does_not_start(gateway: RunningGateway) -> None:
    with pytest.raises(PenstockError, match="there is no such topic"):
        Query(gateway.bootstrap, subscribe="never-made")


def test_a_refused_option_is_told_at_the_first_call_since_spark_hides_an_earlier_error() -> None:
    reader = source("127.0.0.1:1", subscribe="any", maxOffsetsPerTrigger="many").streamReader(schema())
    for call in (reader.initialOffset, lambda: reader.latestOffset({}, ReadAllAvailable())):
        with pytest.raises(OptionError, match="maxOffsetsPerTrigger"):
            call()


def test_starting_offsets_of_another_number_of_partitions_do_not_start(gateway: RunningGateway, topic: str) -> None:
    with pytest.raises(OptionError, match=f"{topic}-1 are missing"):
        Query(gateway.bootstrap, subscribe=topic, startingOffsets=json.dumps({topic: {"0": 0}}))


def test_a_broker_that_restarts_between_batches_is_waited_for(gateway: RunningGateway, topic: str) -> None:
    query = Query(gateway.bootstrap, subscribe=topic, consumer="patient")
    produce(gateway.bootstrap, topic, TEN)
    assert query.batch() == TEN
    gateway.restart()
    produce(gateway.bootstrap, topic, [b"after"])
    assert query.batch() == [b"after"]
    query.stop()
