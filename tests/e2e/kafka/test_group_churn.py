"""A large group whose members come and go all the time: each partition has one owner at a time, and no message is skipped."""

from __future__ import annotations

import logging
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from random import Random
from threading import Lock, Thread

import confluent_kafka
import pytest

from penstock.broker import BrokerOptions
from penstock.broker.groups import GroupOptions
from tests.e2e.kafka.running_gateway import RunningGateway
from tests.e2e.running_node import running_node

MEMBERS = 50
PARTITIONS = 50
CHURN_S = 4.0
KILLS = 15
WAIT_S = 60.0
TOPIC = "churn"
SILENT = logging.getLogger("librdkafka")
SILENT.disabled = True


class Ledger:
    """Who owns what, how far each partition was read by anyone, and what was not as it should be."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.owners: dict[int, Member] = {}
        self.read = dict.fromkeys(range(PARTITIONS), 0)
        self.written = dict.fromkeys(range(PARTITIONS), 0)
        self.hand_overs = 0
        self.errors: list[str] = []

    def take(self, member: Member, partition: int) -> None:
        """A member owns a partition from now on."""
        with self.lock:
            self.hand_overs += 1
            if self.owners.setdefault(partition, member) is not member:
                self.errors.append(f"partition {partition} has two owners")

    def give_up(self, member: Member, partition: int) -> None:
        """A member owns a partition no more."""
        with self.lock:
            if self.owners.pop(partition, None) is not member:
                self.errors.append(f"partition {partition} is given up by another than its owner")

    def note_read(self, member: Member, partition: int, number: int) -> None:
        """A member has read a message: nothing may be missing between this and what was read before, by whomever."""
        with self.lock:
            if self.owners.get(partition) is not member:
                self.errors.append(f"partition {partition} is read by another than its owner")
            if number > self.read[partition]:
                self.errors.append(f"partition {partition}: {number} came where {self.read[partition]} was next")
            self.read[partition] = max(self.read[partition], number + 1)


class Member:
    """One member, which reads in a thread of its own until it is told to leave."""

    def __init__(self, bootstrap: str, ledger: Ledger, strategy: str) -> None:
        self._ledger = ledger
        self._is_leaving = False
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "churn",
                "partition.assignment.strategy": strategy,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                # One that closes while it waits to join again does not say so: for so long the group waits for it.
                "session.timeout.ms": 8000,
                "heartbeat.interval.ms": 300,
                "logger": SILENT,
            }
        )
        self.thread = Thread(target=self._run)
        self.thread.start()

    def leave(self) -> None:
        """Ask it to leave."""
        self._is_leaving = True

    def _run(self) -> None:
        self._consumer.subscribe([TOPIC], on_assign=self._on_assign, on_revoke=self._on_revoke)
        while not self._is_leaving:
            for message in self._consumer.consume(100, 0.1):
                partition = message.partition()
                if message.error() is None and partition is not None:
                    self._ledger.note_read(self, partition, int(message.value() or b"-1"))
        self._consumer.close()

    def _on_assign(self, _: object, partitions: list[confluent_kafka.TopicPartition]) -> None:
        for one in partitions:
            self._ledger.take(self, one.partition)

    def _on_revoke(self, consumer: confluent_kafka.Consumer, partitions: list[confluent_kafka.TopicPartition]) -> None:
        done = [one for one in consumer.position(partitions) if one.offset >= 0]
        # A member that leaves while it joins may be behind; the next owner reads its messages again.
        with suppress(confluent_kafka.KafkaException):
            if done:
                consumer.commit(offsets=done, asynchronous=False)
        for one in partitions:
            self._ledger.give_up(self, one.partition)


class Crowd:
    """The members, a writer, and chance."""

    def __init__(self, bootstrap: str, strategy: str) -> None:
        self._bootstrap = bootstrap
        self._strategy = strategy
        self._random = Random(1)
        self.ledger = Ledger()
        self._members: list[Member] = []
        self._leaving: list[Member] = []
        self._producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "logger": SILENT})

    def add(self) -> None:
        """One more member."""
        self._members.append(Member(self._bootstrap, self.ledger, self._strategy))

    def churn(self) -> None:
        """Some leave, as many come."""
        for _ in range(self._random.randrange(1, 4)):
            member = self._members.pop(self._random.randrange(len(self._members)))
            member.leave()
            self._leaving.append(member)
            self.add()

    def write(self) -> None:
        """A little more for everyone."""
        for partition in range(PARTITIONS):
            self._producer.produce(TOPIC, b"%d" % self.ledger.written[partition], partition=partition)
            self.ledger.written[partition] += 1
        assert self._producer.flush(WAIT_S) == 0
        assert self.ledger.errors == []

    def wait_until_settled(self) -> None:
        """Until every partition has an owner, every member a partition, and all is read."""
        deadline = time.monotonic() + WAIT_S
        ledger = self.ledger
        while set(ledger.owners.values()) != set(self._members) or ledger.read != ledger.written:
            behind = sum(ledger.written.values()) - sum(ledger.read.values())
            assert time.monotonic() < deadline, f"{len(ledger.owners)} partitions are owned, {behind} messages are not read"
            assert ledger.errors == []
            time.sleep(0.05)

    def leave(self) -> None:
        """All leave."""
        for member in self._members:
            member.leave()
        for member in (*self._members, *self._leaving):
            member.thread.join(WAIT_S)


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
            crowd.wait_until_settled()
            until = time.monotonic() + CHURN_S
            while time.monotonic() < until:
                crowd.churn()
                for _ in range(5):
                    crowd.write()
                    time.sleep(0.1)
            crowd.wait_until_settled()
        finally:
            crowd.leave()
        assert crowd.ledger.errors == []
        assert crowd.ledger.hand_overs > PARTITIONS


@pytest.mark.soak
@pytest.mark.timeout(300)
@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_nothing_is_skipped_while_members_come_and_go_and_the_broker_is_killed(tmp_path: Path, strategy: str) -> None:
    random = Random(2)
    settings = ["--data-dir", str(tmp_path / "data"), "--default-partitions", str(PARTITIONS)]
    with ExitStack() as running:
        node = running.enter_context(running_node(tmp_path / "log", settings))
        settings += ["--kafka-port", node.bootstrap.rsplit(":", 1)[1]]
        crowd = Crowd(node.bootstrap, strategy)
        running.callback(crowd.leave)
        crowd.write()
        for _ in range(MEMBERS // 5):
            crowd.add()
        crowd.wait_until_settled()
        for _ in range(KILLS):
            for _ in range(random.randrange(1, 20)):
                crowd.write()
                time.sleep(0.1)
            crowd.churn()
            time.sleep(random.random())
            node.kill()
            time.sleep(random.choice([0.0, 0.5, 2.0]))
            node = running.enter_context(running_node(tmp_path / "log", settings))
        crowd.wait_until_settled()
        crowd.leave()
        assert crowd.ledger.errors == []
