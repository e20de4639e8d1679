"""Rows about what brokers coordinate: groups, transactions, positions, compaction."""

from __future__ import annotations

from itertools import count as numbers

from bench.kafka_peer.brokers import BrokerProcess, load
from bench.kafka_peer.pair import Pair, Sample
from bench.kafka_peer.rows import Compared

GROUP_PARTITIONS = 12
MEMBERS = 50


def coordination(pair: Pair) -> list[Compared]:
    """Every row of this kind."""
    for broker in pair.brokers:
        broker.create_topic("grouped", GROUP_PARTITIONS)
        broker.create_topic("transactional", 4)
    return [
        *group_reads(pair),
        *transactions(pair),
        *members(pair),
        *compaction(pair),
    ]


def group_reads(pair: Pair) -> list[Compared]:
    """A topic read by one group, and by three at once. Every partition has as many messages: where a member has more to read
    than the other, the client waits for the one that has nothing left, and measures that."""
    count = 120_000 if pair.is_quick else 480_000
    for broker in pair.brokers:
        load(
            "produce",
            broker,
            topic="grouped",
            size=1024,
            count=count,
            codec="none",
            spread=GROUP_PARTITIONS,
            broker_pid=broker.pid,
        )

    def read_by(groups: int) -> list[Compared]:
        def measure(broker: BrokerProcess) -> Sample:
            options = {"topic": "grouped", "groups": groups, "members": 2, "count": count}
            result = load("groups", broker, **options, broker_pid=broker.pid)
            return {**result, "rate": groups * count * 1024 / result["s"] / 1e6}

        samples = pair.turns(measure)
        label = f"{groups} group{'s' if groups > 1 else ''} of 2 reading, 1 KiB, {GROUP_PARTITIONS} partitions"
        return [
            samples.row(label, "rate", "MB/s", higher_is_better=True),
            samples.row(f"{label}, broker CPU a message", "broker_us", "us", higher_is_better=False),
        ]

    return [*read_by(1), *read_by(3)]


def transactions(pair: Pair) -> list[Compared]:
    """Transactional produce, a hundred messages a transaction."""
    count = 50 if pair.is_quick else 300

    def measure(broker: BrokerProcess) -> float:
        return count * 100 / load("transactions", broker, topic="transactional", count=count, each=100, size=1024)["s"]

    return [pair.compare("transactions of 100 messages of 1 KiB", "/s", measure, higher_is_better=True)]


def members(pair: Pair) -> list[Compared]:
    """A crowded group that loses a member, and a storm of commits."""

    def rebalanced(broker: BrokerProcess) -> Sample:
        return load("rebalance", broker, members=MEMBERS, broker_pid=broker.pid)

    def committed(broker: BrokerProcess) -> float:
        return load("commits", broker, topic="grouped", connections=8, seconds=1.0 if pair.is_quick else 4.0)["rate"]

    samples = pair.turns(rebalanced)
    label = f"rebalance of {MEMBERS} members when one leaves"
    return [
        samples.row(label, "s", "s", higher_is_better=False),
        samples.row(f"{label}, broker CPU", "broker_ms", "ms", higher_is_better=False),
        pair.compare("offset commits", "/s", committed, higher_is_better=True),
    ]


def compaction(pair: Pair) -> list[Compared]:
    """From the last write until the old values are gone."""
    count, size = (50_000 if pair.is_quick else 300_000), 1024
    number = numbers()

    def measure(broker: BrokerProcess) -> float:
        topic = f"compacted-{next(number)}"
        return count * size / load("compaction", broker, topic=topic, count=count, keys_of=100, size=size)["s"] / 1e6

    return [pair.compare("compaction, 1 KiB values of 100 keys", "MB/s", measure, higher_is_better=True)]
