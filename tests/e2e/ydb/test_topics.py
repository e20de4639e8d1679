"""Topics as the SDK makes, describes, changes and drops them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import ydb

from tests.e2e.running_node import RunningNode
from tests.e2e.ydb.ydb_node import read_all


def test_a_topic_is_described_as_it_was_made(driver: Any) -> None:
    client = driver.topic_client
    client.create_topic(
        "/local/shop/orders",
        min_active_partitions=3,
        retention_period=timedelta(hours=2),
        retention_storage_mb=5,
        supported_codecs=[ydb.TopicCodec.RAW, ydb.TopicCodec.GZIP],
        attributes={"team": "shop"},
        consumers=["one", ydb.TopicConsumer(name="two", important=True, read_from=datetime(2026, 1, 2, tzinfo=UTC))],
    )
    found = client.describe_topic("shop/orders")
    assert [partition.partition_id for partition in found.partitions] == [0, 1, 2]
    assert (found.retention_period, found.retention_storage_mb) == (timedelta(hours=2), 5)
    assert found.supported_codecs == [1, 2]
    assert found.attributes == {"team": "shop"}
    assert [(one.name, one.important) for one in found.consumers] == [("one", False), ("two", True)]
    assert found.consumers[1].read_from == datetime(2026, 1, 2, tzinfo=UTC).replace(tzinfo=None)


def test_a_topic_is_changed_and_dropped(driver: Any, path: str, node: RunningNode) -> None:
    client = driver.topic_client
    client.alter_topic(
        path,
        set_min_active_partitions=4,
        set_retention_period=timedelta(minutes=10),
        add_consumers=["added"],
        drop_consumers=["reader"],
    )
    found = client.describe_topic(path)
    assert len(found.partitions) == 4
    assert found.retention_period == timedelta(minutes=10)
    assert [one.name for one in found.consumers] == ["added"]
    name = path.removeprefix("/local/")
    assert name in node.ok("topic", "list")
    client.drop_topic(path)
    with pytest.raises(ydb.SchemeError, match="there is no topic"):
        client.describe_topic(path)
    assert name not in node.ok("topic", "list")


def test_what_cannot_be_had_is_refused_with_a_status(driver: Any, path: str) -> None:
    client = driver.topic_client
    with pytest.raises(ydb.issues.AlreadyExists):
        client.create_topic(path)
    with pytest.raises(ydb.SchemeError):
        client.drop_topic("/local/nowhere")
    with pytest.raises(ydb.SchemeError, match="not in the database"):
        client.describe_topic("/elsewhere/topic")
    with pytest.raises(ydb.BadRequest, match="can be added, not removed"):
        client.alter_topic(path, set_min_active_partitions=1)
    with pytest.raises(ydb.BadRequest, match="cannot be negative"):
        client.create_topic("/local/fast", partition_write_speed_bytes_per_second=-1)
    with pytest.raises(ydb.SchemeError, match="has no consumer"):
        client.describe_consumer(path, "absent")
    with pytest.raises(ydb.issues.Unsupported, match="serverless"):
        client.create_topic("/local/metered", metering_mode=ydb.TopicMeteringMode.RESERVED_CAPACITY)
    with pytest.raises(ydb.BadRequest, match="max_active_partitions is 2"):
        client.create_topic("/local/small", min_active_partitions=3, max_active_partitions=2)
    with pytest.raises(ydb.BadRequest, match="partition_count_limit is 1"):
        client.alter_topic(path, set_partition_count_limit=1)


def test_how_far_a_consumer_is_behind_is_told(driver: Any, path: str) -> None:
    client = driver.topic_client
    with client.writer(path, producer_id="source", partition_id=1) as writer:
        writer.write([f"message {number}" for number in range(10)])
    partition = client.describe_consumer(path, "reader", include_stats=True).partitions[1]
    assert (partition.partition_stats.partition_start, partition.partition_stats.partition_end) == (0, 10)
    assert partition.partition_consumer_stats.committed_offset == 0
    assert partition.partition_consumer_stats.max_committed_time_lag > timedelta(0)
    read_all(client, path, "reader", 10)
    partition = client.describe_consumer(path, "reader", include_stats=True).partitions[1]
    assert partition.partition_consumer_stats.committed_offset == 10
    assert partition.partition_consumer_stats.max_committed_time_lag == timedelta(0)
    client.commit_offset(path, "reader", 1, 4)
    assert [message.offset for message in read_all(client, path, "reader", 6)] == [4, 5, 6, 7, 8, 9]
    with pytest.raises(ydb.BadRequest, match="it ends at 10"):
        client.commit_offset(path, "reader", 1, 11)
