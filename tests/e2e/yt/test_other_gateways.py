"""What is written through one gateway is read through the other, and a Kafka group is a consumer as any."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.e2e.yt.yt_clusters import wait_until, yt_clusters

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
SCHEMA = [{"name": "data", "type": "string"}, {"name": "count", "type": "uint64"}]


def check_rows_that_do_not_fit(client: Any, producer: Producer) -> None:
    """What Kafka's clients write into a queue is held to its schema in every format, and what does not fit comes all the same."""
    values = [b'{"data": "a", "count": "7"}', b'{"data": "b", "count": 99999999999999999999}', b'{"data": "c", "count": 8}']
    for value in values:
        producer.produce("tmp.rows", value)
    assert producer.flush(20) == 0
    for format_, dollar in (("yson", "$"), ("json", "$$")):
        rows = list(client.pull_queue("//tmp/rows", offset=3, partition_index=0, format=format_))
        assert [row["data"] for row in rows] == [None, None, "c"]
        assert [row.get(f"{dollar}value") for row in rows] == [values[0].decode(), values[1].decode(), None]
        assert "expected an integer" in rows[0][f"{dollar}error"]
        assert "99999999999999999999 is not within" in rows[1][f"{dollar}error"]


def test_rows_and_messages_are_the_same(tmp_path: Path) -> None:
    with yt_clusters(tmp_path, "pythia") as clusters:
        client = clusters.client("pythia")
        bootstrap = clusters.nodes["pythia"].bootstrap
        client.create("table", "//tmp/rows", attributes={"dynamic": True, "schema": SCHEMA})
        client.mount_table("//tmp/rows", sync=True)
        client.insert_rows("//tmp/rows", [{"data": "foo", "count": 2**63}])
        assert client.get("//tmp/rows/@topic") == "tmp.rows"

        producer = Producer({"bootstrap.servers": bootstrap})
        producer.produce("tmp.rows", b'{"data": "by kafka", "count": 7}')
        producer.produce("tmp.rows", b"no row", key=b"k")
        producer.produce("orders", b"value", key=b"key", headers=[("h", b"1")])
        assert producer.flush(20) == 0

        rows = list(client.pull_queue("//tmp/rows", offset=0, partition_index=0))
        assert [(row["data"], row["count"]) for row in rows] == [("foo", 2**63), ("by kafka", 7), (None, None)]
        assert (rows[2]["$key"], rows[2]["$value"]) == ("k", "no row")
        check_rows_that_do_not_fit(client, producer)
        [order] = client.pull_queue("//topics/orders", offset=0, partition_index=0)
        assert (order["key"], order["value"], order["headers"]) == ("key", "value", [["h", "1"]])
        assert client.list("//topics") == ["orders"]

        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "billing", "auto.offset.reset": "earliest"})
        try:
            consumer.assign([TopicPartition("tmp.rows", 0, 0)])
            message = consumer.poll(20)
            assert message is not None
            assert json.loads(message.value() or b"") == {"data": "foo", "count": 2**63}
            consumer.commit(offsets=[TopicPartition("tmp.rows", 0, 1)], asynchronous=False)
        finally:
            consumer.close()

        # The group holds trimming back.
        client.register_queue_consumer("//tmp/rows", "//groups/billing", vital=True)
        client.set("//tmp/rows/@auto_trim_config", {"enable": True})
        wait_until(lambda: bool(client.get("//tmp/rows/@queue_partitions/0/lower_row_index") == 1))
        partitions = client.get("//groups/billing/@queue_consumer_partitions")
        assert partitions["pythia://tmp/rows"][0]["unread_row_count"] == 5
        assert client.list("//groups") == ["billing"]

        # And a consumer of YT is a group as any.
        client.create("queue_consumer", "//tmp/reader")
        client.register_queue_consumer("//tmp/rows", "//tmp/reader", vital=False)
        client.advance_consumer("//tmp/reader", "//tmp/rows", partition_index=0, old_offset=None, new_offset=2)
        node = clusters.nodes["pythia"]
        assert "//tmp/reader\tyt\tEmpty" in node.ok("group", "list")
        assert "position\ttmp.rows\t0\t2\t6\t4\t" in node.ok("group", "describe", "//tmp/reader")
        node.ok("group", "reset", "//tmp/reader", "--to", "3", "--yes")
        partitions = client.get("//tmp/reader/@queue_consumer_partitions")
        assert partitions["pythia://tmp/rows"][0]["unread_row_count"] == 3
        node.ok("group", "delete", "//tmp/reader", "--yes")
        assert not client.exists("//tmp/reader")
        assert "//tmp/reader" not in node.ok("group", "list")
