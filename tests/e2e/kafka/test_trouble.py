"""Trouble below the gateway: clients see Kafka's own retriable errors, and go on when it is over."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from penstock.broker.tablets import tablet_info
from penstock.kafka.protocol import errors, keys
from penstock.kafka.protocol.produce import ProduceResponse
from penstock.queue import Partition
from tests.e2e.kafka.raw_client import RawClient, produce_request
from tests.e2e.kafka.running_gateway import RunningGateway
from tests.e2e.kafka.test_clients import confluent_read
from tests.e2e.kafka.test_produce import batch_of

WAIT_S = 20.0


def partition_of(gateway: RunningGateway, topic: str) -> Partition:
    return gateway.partition(topic)


def fence(gateway: RunningGateway, topic: str) -> None:
    """Another node claims the tablet of the topic: the running one is told BLOCKED at its next write, and starts again."""
    tablet_id = gateway.broker.catalog.topic(topic).tablets[0]
    generation = partition_of(gateway, topic).epoch + 1
    gateway.run(gateway.storage.tablet(tablet_info(tablet_id, 0)).block(generation, 12345))


def test_a_write_that_takes_too_long_is_answered_and_still_stored(tmp_path: Path) -> None:
    async def hold(partition: Partition, until: asyncio.Event) -> None:
        async with partition._changing:
            await until.wait()

    with RunningGateway(tmp_path) as gateway, RawClient(gateway.port) as client:
        gateway.create_topic("slow")
        release = asyncio.Event()

        async def start_holding() -> asyncio.Task[None]:
            return asyncio.create_task(hold(partition_of(gateway, "slow"), release))

        async def stop_holding() -> None:
            release.set()
            await holding

        holding = gateway.run(start_holding())
        request = produce_request("slow", batch_of(b"late"), timeout_ms=100)
        late = client.call(keys.PRODUCE, 9, request, ProduceResponse)
        assert late.responses[0].partition_responses[0].error_code == errors.REQUEST_TIMED_OUT
        gateway.run(stop_holding())
        assert client.produce("slow", batch_of(b"next")).base_offset == 1


def test_a_fenced_tablet_is_started_again_under_a_new_leader_epoch(tmp_path: Path) -> None:
    with RunningGateway(tmp_path) as gateway, RawClient(gateway.port) as client:
        gateway.create_topic("fenced")
        assert client.produce("fenced", batch_of(b"a")).base_offset == 0
        epoch = partition_of(gateway, "fenced").epoch
        fence(gateway, "fenced")
        codes = {client.produce("fenced", batch_of(b"b")).error_code}
        deadline = time.monotonic() + 10
        while (last := client.produce("fenced", batch_of(b"c")).error_code) and time.monotonic() < deadline:
            codes.add(last)
            time.sleep(0.01)
        assert last == errors.NONE
        assert codes <= {errors.NOT_LEADER_OR_FOLLOWER, errors.KAFKA_STORAGE_ERROR}
        assert partition_of(gateway, "fenced").epoch > epoch


def test_a_client_that_asks_for_offsets_while_a_tablet_starts_is_told_them_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """librdkafka takes a partition without a leader for unknown until it refreshes its metadata, minutes later."""
    with RunningGateway(tmp_path) as gateway, RawClient(gateway.port) as client:
        gateway.create_topic("starting")
        assert client.produce("starting", batch_of(b"a")).base_offset == 0
        may_start = threading.Event()
        boot = gateway.broker.tablets._boot

        async def boot_later(*arguments: Any) -> Any:
            await asyncio.to_thread(may_start.wait, WAIT_S)
            return await boot(*arguments)

        monkeypatch.setattr(gateway.broker.tablets, "_boot", boot_later)
        fence(gateway, "starting")
        assert client.produce("starting", batch_of(b"b")).error_code
        consumer = confluent_kafka.Consumer({"bootstrap.servers": gateway.bootstrap, "group.id": "late", "log_level": 0})
        with pytest.raises(confluent_kafka.KafkaException):
            consumer.get_watermark_offsets(confluent_kafka.TopicPartition("starting", 0), timeout=3)
        may_start.set()
        deadline, offsets = time.monotonic() + WAIT_S, (-1, -1)
        while offsets[0] != 0 or offsets[1] < 1:  # if one of its two requests is refused, it takes the other answer for both
            assert time.monotonic() < deadline
            with suppress(confluent_kafka.KafkaException):
                offsets = consumer.get_watermark_offsets(confluent_kafka.TopicPartition("starting", 0), timeout=3)
            time.sleep(0.05)
        consumer.close()


def test_a_producer_does_not_notice_a_fenced_tablet(tmp_path: Path) -> None:
    count = 300
    with RunningGateway(tmp_path) as gateway:
        gateway.create_topic("steady")
        failures: list[object] = []
        producer = confluent_kafka.Producer({"bootstrap.servers": gateway.bootstrap, "enable.idempotence": True, "linger.ms": 0})
        for number in range(count):
            producer.produce("steady", b"%d" % number, on_delivery=lambda error, _: failures.append(error) if error else None)
            if number in (100, 200):
                producer.flush(10)
                fence(gateway, "steady")
        assert producer.flush(30) == 0
        assert failures == []
        assert confluent_read(gateway.bootstrap, "steady", count) == [b"%d" % number for number in range(count)]
