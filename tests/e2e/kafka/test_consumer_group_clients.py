"""Groups whose partitions the broker assigns, with a client as it is (`group.protocol=consumer`)."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient

from penstock.broker import BrokerOptions
from penstock.broker.groups import ConsumerGroupOptions, Heartbeat
from tests.e2e.kafka.running_gateway import RunningGateway
from tests.e2e.running_node import running_node

# No member is to be given up for lost because this machine is busy.
QUICK = ConsumerGroupOptions(session_timeout_ms=45_000, heartbeat_interval_ms=200)
WAIT_S = 90.0


class Reader:
    """A member that reads, notes what it has read, and commits as it goes."""

    def __init__(
        self,
        bootstrap: str,
        group: str,
        topics: list[str],
        owners: dict[tuple[str, int], Reader] | None = None,
        **settings: object,
    ) -> None:
        self.consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "group.protocol": "consumer",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "reconnect.backoff.max.ms": 200,
                "topic.metadata.refresh.interval.ms": 300,
                **settings,
            }
        )
        self.read: list[tuple[str, int, int]] = []
        self.owners: dict[tuple[str, int], Reader] = {} if owners is None else owners
        self.conflicts: list[tuple[str, int]] = []
        self.consumer.subscribe(topics, on_assign=self._take, on_revoke=self._give_up, on_lost=self._give_up)

    @property
    def partitions(self) -> set[tuple[str, int]]:
        return {(one.topic, one.partition) for one in self.consumer.assignment()}

    def poll(self, timeout_s: float = 0.02) -> None:
        for message in self.consumer.consume(100, timeout_s):
            error = message.error()
            if error is None:
                self.read.append((str(message.topic()), message.partition() or 0, message.offset() or 0))
            elif not error.retriable() and error.code() != confluent_kafka.KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise confluent_kafka.KafkaException(error)

    def commit(self) -> None:
        """Commit what was read; what was taken away in the meantime, its next owner reads again."""
        try:
            self.consumer.commit(asynchronous=False)
        except confluent_kafka.KafkaException as failure:
            if failure.args[0].code() not in (
                confluent_kafka.KafkaError._NO_OFFSET,
                confluent_kafka.KafkaError.STALE_MEMBER_EPOCH,
                confluent_kafka.KafkaError.UNKNOWN_MEMBER_ID,
            ):
                raise

    def close(self) -> None:
        self.consumer.close()

    def _take(self, _: confluent_kafka.Consumer, places: list[confluent_kafka.TopicPartition]) -> None:
        for place in places:
            if (place.topic, place.partition) in self.owners:
                self.conflicts.append((place.topic, place.partition))
            self.owners[place.topic, place.partition] = self

    def _give_up(self, _: confluent_kafka.Consumer, places: list[confluent_kafka.TopicPartition]) -> None:
        for place in places:
            del self.owners[place.topic, place.partition]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """A gateway whose groups settle quickly."""
    options = BrokerOptions(consumer_groups=QUICK)
    with RunningGateway(tmp_path_factory.mktemp("gateway"), broker_options=options) as running:
        yield running


def write(bootstrap: str, topic: str, partitions: int, count: int) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=number % partitions)
    assert producer.flush(WAIT_S) == 0


def until(readers: list[Reader], reached: Callable[[], bool], wait_s: float = WAIT_S) -> None:
    """Let everyone read until something is so."""
    deadline = time.monotonic() + wait_s
    while not reached():
        assert time.monotonic() < deadline, [(sorted(reader.partitions), len(reader.read)) for reader in readers]
        for reader in readers:
            reader.poll()


def are_divided(readers: list[Reader], topic: str, partitions: int) -> bool:
    """Whether each partition is with one of them, and everyone has a fair share."""
    shares = [reader.partitions for reader in readers]
    fair = max(map(len, shares)) - min(map(len, shares)) <= 1
    return fair and Counter(one for share in shares for one in share) == Counter((topic, number) for number in range(partitions))


def test_members_join_leave_and_read_everything_once(gateway: RunningGateway) -> None:
    gateway.create_topic("shared", 6)
    write(gateway.bootstrap, "shared", 6, 600)
    readers = [Reader(gateway.bootstrap, "team", ["shared"])]
    until(readers, lambda: are_divided(readers, "shared", 6) and len(readers[0].read) == 600)
    readers[0].commit()
    for _ in range(2):
        readers.append(Reader(gateway.bootstrap, "team", ["shared"]))
    until(readers, lambda: are_divided(readers, "shared", 6))
    write(gateway.bootstrap, "shared", 6, 600)
    until(readers, lambda: sum(len(reader.read) for reader in readers) == 1200)
    for reader in readers:
        reader.commit()
    leaving = readers.pop()
    leaving.close()
    until(readers, lambda: are_divided(readers, "shared", 6))
    write(gateway.bootstrap, "shared", 6, 60)
    until(readers, lambda: sum(len(reader.read) for reader in [*readers, leaving]) == 1260)
    counted = Counter(one for reader in [*readers, leaving] for one in reader.read)
    assert set(counted.values()) == {1}
    for reader in readers:
        reader.close()


def test_a_pattern_finds_topics_that_come_later(gateway: RunningGateway) -> None:
    gateway.create_topic("metrics-a", 2)
    gateway.create_topic("other-a", 1)
    reader = Reader(gateway.bootstrap, "by-pattern", ["^metrics-[a-z]+"])
    until([reader], lambda: reader.partitions == {("metrics-a", 0), ("metrics-a", 1)})
    gateway.create_topic("metrics-b", 1)
    gateway.create_topic("metrics-9", 1)
    until([reader], lambda: reader.partitions == {("metrics-a", 0), ("metrics-a", 1), ("metrics-b", 0)})
    gateway.run(gateway.broker.add_partitions("metrics-b", 2))
    until([reader], lambda: ("metrics-b", 1) in reader.partitions)
    gateway.run(gateway.broker.delete_topic("metrics-a"))
    until([reader], lambda: reader.partitions == {("metrics-b", 0), ("metrics-b", 1)})
    reader.close()


def test_a_silent_member_is_replaced_after_its_session(tmp_path: Path) -> None:
    quick = ConsumerGroupOptions(session_timeout_ms=1500, heartbeat_interval_ms=100)
    with RunningGateway(tmp_path, broker_options=BrokerOptions(consumer_groups=quick)) as gateway:
        gateway.create_topic("left-behind", 4)
        silent = Heartbeat("silent", 0, rebalance_timeout_ms=60_000, names=frozenset({"left-behind"}), owned=frozenset())
        joined = gateway.run(gateway.broker.groups.consumer.heartbeat("crashers", silent))
        assert joined.assigned is not None
        assert len(joined.assigned) == 4
        reader = Reader(gateway.bootstrap, "crashers", ["left-behind"])
        until([reader], lambda: len(reader.partitions) == 4)
        group = gateway.broker.groups.consumer.group("crashers")
        assert group is not None
        assert group.members.keys() == {reader.consumer.memberid()}
        reader.close()


def test_a_static_member_comes_back_to_what_it_had(gateway: RunningGateway) -> None:
    gateway.create_topic("static", 4)
    fixed = {"group.instance.id": "host-1"}
    readers = [Reader(gateway.bootstrap, "statics", ["static"], None, **fixed), Reader(gateway.bootstrap, "statics", ["static"])]
    until(readers, lambda: are_divided(readers, "static", 4))
    had, other = readers[0].partitions, readers[1].partitions
    readers[0].close()
    readers[0] = Reader(gateway.bootstrap, "statics", ["static"], None, **fixed)
    until(readers, lambda: are_divided(readers, "static", 4))
    assert (readers[0].partitions, readers[1].partitions) == (had, other)
    for reader in readers:
        reader.close()


def test_positions_are_set_in_a_transaction(gateway: RunningGateway) -> None:
    gateway.create_topic("taken", 1)
    gateway.create_topic("given", 1)
    write(gateway.bootstrap, "taken", 1, 10)
    reader = Reader(gateway.bootstrap, "workers", ["taken"])
    until([reader], lambda: len(reader.read) == 10)
    producer = confluent_kafka.Producer({"bootstrap.servers": gateway.bootstrap, "transactional.id": "worker"})
    producer.init_transactions(WAIT_S)
    for offset, end in ((4, producer.abort_transaction), (7, producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce("given", b"%d" % offset)
        place = confluent_kafka.TopicPartition("taken", 0, offset)
        producer.send_offsets_to_transaction([place], reader.consumer.consumer_group_metadata(), WAIT_S)
        end(WAIT_S)
    found = reader.consumer.committed([confluent_kafka.TopicPartition("taken", 0)], WAIT_S)
    assert [one.offset for one in found] == [7]
    reader.close()


def test_administrators_see_the_group(gateway: RunningGateway) -> None:
    gateway.create_topic("seen", 2)
    reader = Reader(gateway.bootstrap, "seen-group", ["seen"])
    until([reader], lambda: len(reader.partitions) == 2)
    admin = AdminClient({"bootstrap.servers": gateway.bootstrap})
    listed = {one.group_id: one for one in admin.list_consumer_groups().result().valid}
    assert listed["seen-group"].type is confluent_kafka.ConsumerGroupType.CONSUMER
    described = admin.describe_consumer_groups(["seen-group"])["seen-group"].result()
    assert described.state is confluent_kafka.ConsumerGroupState.STABLE
    assert [one.partition for one in described.members[0].assignment.topic_partitions] == [0, 1]
    reader.close()
    assert admin.delete_consumer_groups(["seen-group"])["seen-group"].result() is None


def test_members_go_on_after_a_restart(gateway: RunningGateway) -> None:
    gateway.create_topic("restarts", 4)
    write(gateway.bootstrap, "restarts", 4, 100)
    readers = [Reader(gateway.bootstrap, "restarters", ["restarts"]) for _ in range(2)]
    until(readers, lambda: are_divided(readers, "restarts", 4) and sum(len(reader.read) for reader in readers) >= 100)
    for reader in readers:
        reader.commit()
    had = [reader.partitions for reader in readers]
    group = gateway.broker.groups.consumer.group("restarters")
    assert group is not None
    gateway.restart()
    write(gateway.bootstrap, "restarts", 4, 100)
    until(readers, lambda: sum(len(reader.read) for reader in readers) >= 200)
    assert [reader.partitions for reader in readers] == had
    restored = gateway.broker.groups.consumer.group("restarters")
    assert restored is not None
    assert (restored.record.epoch, restored.members.keys()) == (group.record.epoch, group.members.keys())
    for reader in readers:
        reader.close()


def _read_by(readers: list[Reader]) -> set[tuple[str, int, int]]:
    """What was read by any of them, each message once."""
    return {one for reader in readers for one in reader.read}


def test_members_go_on_after_the_broker_was_killed(tmp_path: Path) -> None:
    settings = ("--data-dir", str(tmp_path / "data"), "--consumer-heartbeat-interval-s", "0.2", "--default-partitions", "4")
    with running_node(tmp_path / "log", settings) as node:
        bootstrap = node.bootstrap
        write(bootstrap, "killed", 4, 200)
        readers = [Reader(bootstrap, "survivors", ["killed"]) for _ in range(2)]
        until(readers, lambda: are_divided(readers, "killed", 4) and len(_read_by(readers)) == 200)
        places = [confluent_kafka.TopicPartition("killed", number) for number in range(4)]
        # A commit of a member whose epoch has just changed is refused; the next one is not.
        while sum(max(place.offset, 0) for place in readers[0].consumer.committed(places, 10)) < 200:
            for reader in readers:
                reader.poll(0.1)
                reader.commit()
        had = [reader.partitions for reader in readers]
        # Some of them may have been read twice: by a member that lost the partition before it could commit, and by the next.
        committed = [list(reader.read) for reader in readers]
        node.kill()
    port = bootstrap.rpartition(":")[2]
    with running_node(tmp_path / "log", (*settings, "--kafka-port", port)):
        write(bootstrap, "killed", 4, 200)
        until(readers, lambda: len(_read_by(readers)) == 400)
        assert [reader.partitions for reader in readers] == had
        for reader in readers:
            reader.commit()
        later = {one for reader, before in zip(readers, committed, strict=True) for one in reader.read[len(before) :]}
        # What was not committed yet may come again if a member was late to be heard of.
        assert later.isdisjoint(one for before in committed for one in before)
        for reader in readers:
            reader.close()


@pytest.mark.slow
def test_twenty_members_come_and_go_and_no_message_is_skipped(gateway: RunningGateway) -> None:
    random = Random(5)
    gateway.create_topic("busy", 40)
    owners: dict[tuple[str, int], Reader] = {}
    readers = [Reader(gateway.bootstrap, "crowd", ["busy"], owners) for _ in range(20)]
    gone: list[Reader] = []
    for _ in range(6):
        write(gateway.bootstrap, "busy", 40, 400)
        until(readers, lambda: len(owners) == 40)
        leaving = readers.pop(random.randrange(len(readers)))
        leaving.commit()
        leaving.close()
        gone.append(leaving)
        readers.append(Reader(gateway.bootstrap, "crowd", ["busy"], owners))
        for reader in readers:
            reader.poll(0)
            reader.commit()
    everyone = [*readers, *gone]
    until(readers, lambda: are_divided(readers, "busy", 40) and len({one for reader in everyone for one in reader.read}) == 2400)
    assert [reader.conflicts for reader in everyone if reader.conflicts] == []
    assert len(owners) == 40
    for reader in readers:
        reader.close()
