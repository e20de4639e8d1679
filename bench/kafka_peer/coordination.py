"""Rows about what brokers coordinate: groups, transactions, positions, compaction."""

from __future__ import annotations

from bench.kafka_peer.brokers import BrokerProcess
from bench.kafka_peer.pair import Compared, Pair, load

GROUP_PARTITIONS = 12
MEMBERS = 50


def coordination(pair: Pair, *, quick: bool) -> list[Compared]:
    """Every row of this kind."""
    for broker in (pair.ours, pair.kafka):
        load("create", broker, topic="grouped", partitions=GROUP_PARTITIONS)
        load("create", broker, topic="transactional", partitions=4)
        load("create", broker, topic="crowded", partitions=2 * MEMBERS)
    return [
        *group_reads(pair, quick=quick),
        *transactions(pair, quick=quick),
        *members(pair, quick=quick),
        *compaction(pair, quick=quick),
    ]


def group_reads(pair: Pair, *, quick: bool) -> list[Compared]:
    """A topic read by one group, and by three at once. Every partition has as many messages: where a member has more to read
    than the other, the client waits for the one that has nothing left, and measures that."""
    count = 120_000 if quick else 480_000
    for broker in (pair.ours, pair.kafka):
        load("produce", broker, topic="grouped", size=1024, count=count, codec="none", spread=GROUP_PARTITIONS)

    def read_by(groups: int) -> Compared:
        def measure(broker: BrokerProcess) -> float:
            result = load("groups", broker, topic="grouped", groups=groups, members=2, count=count)
            return groups * count * 1024 / result["s"] / 1e6

        label = "1 group of 2 reading" if groups == 1 else f"{groups} groups of 2 reading"
        return pair.compare(f"{label}, 1 KiB, {GROUP_PARTITIONS} partitions", "MB/s", measure, higher_is_better=True)

    return [read_by(1), read_by(3)]


def transactions(pair: Pair, *, quick: bool) -> list[Compared]:
    """Transactional produce, a hundred messages a transaction."""
    count = 50 if quick else 300

    def measure(broker: BrokerProcess) -> float:
        return count * 100 / load("transactions", broker, topic="transactional", count=count, each=100, size=1024)["s"]

    return [pair.compare("transactions of 100 messages of 1 KiB", "/s", measure, higher_is_better=True)]


def members(pair: Pair, *, quick: bool) -> list[Compared]:
    """A crowded group that loses a member, and a storm of commits."""

    def rebalanced(broker: BrokerProcess) -> float:
        return load("rebalance", broker, topic="crowded", members=MEMBERS)["s"]

    def committed(broker: BrokerProcess) -> float:
        return load("commits", broker, topic="grouped", connections=8, seconds=1.0 if quick else 4.0)["rate"]

    return [
        pair.compare(f"rebalance of {MEMBERS} members when one leaves", "s", rebalanced, higher_is_better=False),
        pair.compare("offset commits", "/s", committed, higher_is_better=True),
    ]


def compaction(pair: Pair, *, quick: bool) -> list[Compared]:
    """From the last write until the old values are gone."""
    count, size = (50_000 if quick else 300_000), 1024
    runs = {"penstock": 0, "kafka": 0}

    def measure(broker: BrokerProcess) -> float:
        runs[broker.name] += 1
        topic = f"compacted-{runs[broker.name]}"
        return count * size / load("compaction", broker, topic=topic, count=count, keys_of=100, size=size)["s"] / 1e6

    return [pair.compare("compaction, 1 KiB values of 100 keys", "MB/s", measure, higher_is_better=True)]
