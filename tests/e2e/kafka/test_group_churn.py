"""A large group whose members come and go all the time: each partition has one owner at a time, and no message is skipped."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from random import Random

import confluent_kafka
import pytest

from penstock.broker import BrokerOptions
from penstock.broker.groups import GroupOptions
from tests.e2e.kafka.running_gateway import RunningGateway

MEMBERS = 50
PARTITIONS = 50
CHURN_S = 8.0
WAIT_S = 60.0
TOPIC = "churn"
SILENT = logging.getLogger("librdkafka")
SILENT.disabled = True


class Ledger:
    """Who owns what, and how far each partition was read by anyone."""

    def __init__(self) -> None:
        self.owners: dict[int, Consumer] = {}
        self.read = dict.fromkeys(range(PARTITIONS), 0)
        self.written = dict.fromkeys(range(PARTITIONS), 0)
        self.hand_overs = 0

    def is_read(self) -> bool:
        """Whether all that was written was read."""
        return self.read == self.written


class Consumer:
    """One member."""

    def __init__(self, bootstrap: str, ledger: Ledger, strategy: str) -> None:
        self._ledger = ledger
        self.errors: list[str] = []
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "churn",
                "partition.assignment.strategy": strategy,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 45_000,
                "heartbeat.interval.ms": 300,
                "logger": SILENT,
            }
        )
        self._consumer.subscribe([TOPIC], on_assign=self._on_assign, on_revoke=self._on_revoke)

    def _on_assign(self, _: object, partitions: list[confluent_kafka.TopicPartition]) -> None:
        for one in partitions:
            other = self._ledger.owners.setdefault(one.partition, self)
            if other is not self:
                self.errors.append(f"partition {one.partition} has two owners")
            self._ledger.hand_overs += 1

    def _on_revoke(self, consumer: confluent_kafka.Consumer, partitions: list[confluent_kafka.TopicPartition]) -> None:
        done = [one for one in consumer.position(partitions) if one.offset >= 0]
        if done:
            consumer.commit(offsets=done, asynchronous=False)
        for one in partitions:
            if self._ledger.owners.pop(one.partition, None) is not self:
                self.errors.append(f"partition {one.partition} was not its own")

    def poll(self) -> None:
        """Read what there is; nothing may be missing between what was read before and this."""
        for message in self._consumer.consume(100, 0):
            if message.error() is not None:
                continue
            partition, number = message.partition(), int(message.value() or b"-1")
            assert partition is not None
            if self._ledger.owners.get(partition) is not self:
                self.errors.append(f"partition {partition} is read by another than its owner")
            expected = self._ledger.read[partition]
            if number > expected:
                self.errors.append(f"partition {partition}: {number} came where {expected} was next")
            self._ledger.read[partition] = max(expected, number + 1)

    def close(self) -> None:
        """Leave the group."""
        self._consumer.close()


class Crowd:
    """The members, a writer, and chance."""

    def __init__(self, bootstrap: str, strategy: str) -> None:
        self._bootstrap = bootstrap
        self._strategy = strategy
        self._random = Random(1)
        self.ledger = Ledger()
        self.members: list[Consumer] = []
        self._producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "logger": SILENT})

    def add(self) -> None:
        """One more member."""
        self.members.append(Consumer(self._bootstrap, self.ledger, self._strategy))

    def turn(self) -> None:
        """Write a little, and let every member read."""
        for _ in range(20):
            partition = self._random.randrange(PARTITIONS)
            self._producer.produce(TOPIC, b"%d" % self.ledger.written[partition], partition=partition)
            self.ledger.written[partition] += 1
        self._producer.flush(WAIT_S)
        self.read()

    def read(self) -> None:
        """Let every member read."""
        for member in self.members:
            member.poll()
            assert member.errors == []

    def churn(self) -> None:
        """Some leave, as many come."""
        for _ in range(self._random.randrange(1, 4)):
            self.members.pop(self._random.randrange(len(self.members))).close()
            self.add()

    def wait_until_shared(self) -> None:
        """Until every partition has an owner, and every member a partition."""
        deadline = time.monotonic() + WAIT_S
        while len(self.ledger.owners) < PARTITIONS or len(set(self.ledger.owners.values())) < len(self.members):
            assert time.monotonic() < deadline, f"{len(self.ledger.owners)} partitions are owned"
            self.turn()

    def wait_until_read(self) -> None:
        """Until nothing is left to read."""
        deadline = time.monotonic() + WAIT_S
        while not self.ledger.is_read():
            assert time.monotonic() < deadline
            self.read()

    def close(self) -> None:
        """All leave."""
        for member in self.members:
            member.close()


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_each_partition_has_one_owner_at_a_time_and_nothing_is_skipped(tmp_path: Path, strategy: str) -> None:
    options = BrokerOptions(groups=GroupOptions(initial_rebalance_delay_ms=500))
    with RunningGateway(tmp_path, broker_options=options) as gateway:
        gateway.create_topic(TOPIC, PARTITIONS)
        crowd = Crowd(gateway.bootstrap, strategy)
        try:
            for _ in range(MEMBERS):
                crowd.add()
            crowd.wait_until_shared()
            until = time.monotonic() + CHURN_S
            while time.monotonic() < until:
                crowd.churn()
                for _ in range(20):
                    crowd.turn()
            crowd.wait_until_shared()
            crowd.wait_until_read()
        finally:
            crowd.close()
        assert crowd.ledger.hand_overs > 2 * PARTITIONS
        assert gateway.broker.groups.listed()[0].state == "Empty"
