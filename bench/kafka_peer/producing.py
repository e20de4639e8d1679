"""Rows about producers and consumers: each waiting for its acknowledgement, in bulk, end to end, idle, and beside compaction."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count as numbers

from bench.kafka_peer.brokers import BrokerProcess, load
from bench.kafka_peer.pair import Pair, Sample, Samples
from bench.kafka_peer.rows import LEVEL, Compared, Figure, Goal, show

RAW_PRODUCERS = (64, 256, 1000)
IDLE_CONSUMERS = 1000
PIPELINES = 4
PIPELINED = 64


@dataclass(frozen=True, slots=True)
class SyncGoals:
    """What a row of synchronous producers has to reach: its p50, its rate, and the broker's processor time a message."""

    p50: Goal = LEVEL
    rate: Goal = LEVEL
    cpu: Goal = LEVEL


def _cpu_limit(microseconds: float) -> Goal:
    return Goal(microseconds, is_of_ours=True, at_least=False)


SYNC_GOALS = {
    ("1", False): SyncGoals(p50=Goal(0.85), rate=Goal(0.85), cpu=_cpu_limit(90)),
    ("1", True): SyncGoals(p50=Goal(1.5), rate=Goal(1.5)),
    ("64", False): SyncGoals(cpu=_cpu_limit(28)),
    ("64", True): SyncGoals(rate=Goal(3.5)),
    ("64 idempotent", False): SyncGoals(cpu=_cpu_limit(35)),
}


def synchronous(pair: Pair) -> list[Compared]:
    """1 KiB messages, each producer waiting for its acknowledgement. Up to 64 are librdkafka producers in threads; a thousand
    of those would measure the client, so from 64 on there are raw connections with ready requests as well."""
    return _in_threads(pair, ((1, False), (64, False), (64, True))) + raw_synchronous(pair, RAW_PRODUCERS)


def floor(pair: Pair) -> list[Compared]:
    """The same beside a broker that does nothing but write: what is left to gain."""
    return _in_threads(pair, ((1, False), (64, False))) + raw_synchronous(pair, (64, 256))


def _in_threads(pair: Pair, crowds: tuple[tuple[int, bool], ...]) -> list[Compared]:
    """librdkafka producers: how many, and whether they are idempotent."""
    found: list[Compared] = []
    for producers, idempotent in crowds:
        name = f"{producers} idempotent" if idempotent else str(producers)
        topic = _created(pair, f"sync-{pair.label}-{name}", 12)

        def measure(
            broker: BrokerProcess, producers: int = producers, idempotent: bool = idempotent, topic: str = topic
        ) -> Sample:
            options = {"topic": topic, "producers": producers, "idempotent": idempotent, "seconds": _seconds(pair)}
            return load("latency", broker, **options, broker_pid=broker.pid)

        title = f"{name} synchronous producer{'s' if producers > 1 else ''}"
        found += _sync_rows(pair.turns(measure), title, pair.label, SYNC_GOALS.get((name, pair.is_synced), SyncGoals()))
    return found


def raw_synchronous(pair: Pair, crowds: tuple[int, ...]) -> list[Compared]:
    """Raw connections, one request in flight on each; and whether more of them get less done."""
    found: list[Compared] = []
    rates: dict[int, tuple[Figure, Figure]] = {}
    for producers in crowds:
        topic = _created(pair, f"raw-{pair.label}-{producers}", 12)

        def measure(broker: BrokerProcess, producers: int = producers, topic: str = topic) -> Sample:
            options = {"topic": topic, "wire": broker.wire, "producers": producers, "seconds": _seconds(pair)}
            return load("raw", broker, **options, broker_pid=broker.pid)

        samples = pair.turns(measure)
        found += _sync_rows(samples, f"{producers:,} raw producer{'s' if producers > 1 else ''}", pair.label, SyncGoals())
        rates[producers] = samples.figure("rate")
    if {64, 256} <= rates.keys():
        ours, peer = (_over(rates[256][side], rates[64][side]) for side in (0, 1))
        goal = Goal(1.0, is_of_ours=True) if pair.has_goals and not pair.is_synced else None
        name = f"256 raw producers, rate over that of 64, {pair.label}"
        found.append(show(Compared.of(name, "x", ours, peer, higher_is_better=True, goal=goal)))
    return found


def _over(figure: Figure, base: Figure) -> Figure:
    return Figure(figure.median / base.median, figure.low / base.high, figure.high / base.low)


def _sync_rows(samples: Samples, title: str, label: str, goals: SyncGoals) -> list[Compared]:
    return [
        samples.row(f"{title}, rate, {label}", "rate", "/s", higher_is_better=True, goal=goals.rate),
        samples.row(f"{title}, p50, {label}", "p50_us", "us", higher_is_better=False, goal=goals.p50),
        samples.row(f"{title}, p99, {label}", "p99_us", "us", higher_is_better=False),
        samples.row(f"{title}, p99.9, {label}", "p99.9_us", "us", higher_is_better=False),
        samples.row(f"{title}, broker CPU a message, {label}", "broker_us", "us", higher_is_better=False, goal=goals.cpu),
    ]


def throughput(pair: Pair) -> list[Compared]:
    """Produce and consume in bulk, small and larger messages, plain and lz4, one partition and twelve."""
    every = [(size, codec, partitions) for size in (100, 1024) for codec in ("none", "lz4") for partitions in (1, 12)]
    is_short = pair.is_quick or pair.is_synced
    found: list[Compared] = []
    for size, codec, partitions in [(100, "none", 1), (1024, "none", 12)] if is_short else every:
        found += _bulk(pair, size, codec, partitions)
    return found + _unlingering(pair)


def _bulk(pair: Pair, size: int, codec: str, partitions: int) -> list[Compared]:
    """One shape of load: produced, then consumed as often as there are rounds."""
    count = (200_000 if pair.is_quick else 1_000_000) // (1 if size == 100 else 4)
    topic = _created(pair, f"t-{pair.label}-{size}-{codec}-{partitions}", partitions)

    def produced(broker: BrokerProcess) -> Sample:
        result = load("produce", broker, topic=topic, size=size, count=count, codec=codec, broker_pid=broker.pid)
        return {**result, "rate": count * size / result["s"] / 1e6}

    def consumed(broker: BrokerProcess) -> Sample:
        result = load("consume", broker, topic=topic, partitions=partitions, count=count, broker_pid=broker.pid)
        return {**result, "rate": result["count"] * size / result["s"] / 1e6}

    shape = f"{size} B, {codec}, {partitions} partition{'s' if partitions > 1 else ''}"
    goal = Goal(2.0) if pair.is_synced else LEVEL
    return [
        *_bulk_rows(pair.turns(produced), f"produce {shape}", pair.label, goal),
        *_bulk_rows(pair.turns(consumed), f"consume {shape}", pair.label, LEVEL),
    ]


def _unlingering(pair: Pair) -> list[Compared]:
    """Small messages over twelve partitions by a producer that does not linger: many small batches."""
    size, count = 100, 200_000 if pair.is_quick else 1_000_000
    topic = _created(pair, f"t-{pair.label}-linger-0", 12)

    def produced(broker: BrokerProcess) -> Sample:
        options = {"topic": topic, "size": size, "count": count, "codec": "none", "spread": 12, "linger_ms": 0}
        result = load("produce", broker, **options, broker_pid=broker.pid)
        return {**result, "rate": count * size / result["s"] / 1e6}

    return _bulk_rows(pair.turns(produced), "produce 100 B, none, 12 partitions, linger 0", pair.label, LEVEL)


def _bulk_rows(samples: Samples, title: str, label: str, goal: Goal) -> list[Compared]:
    return [
        samples.row(f"{title}, {label}", "rate", "MB/s", higher_is_better=True, goal=goal),
        samples.row(f"{title}, broker CPU a message, {label}", "broker_us", "us", higher_is_better=False),
    ]


def pipelined(pair: Pair) -> list[Compared]:
    """1 KiB messages, one a request, many in flight on a few raw connections: for peers that take no batches."""
    topic = _created(pair, f"pipelined-{pair.label}", 12)

    def measure(broker: BrokerProcess) -> Sample:
        options = {"topic": topic, "wire": broker.wire, "producers": PIPELINES, "in_flight": PIPELINED}
        return load("raw", broker, **options, seconds=_seconds(pair), broker_pid=broker.pid)

    samples = pair.turns(measure)
    title = f"{PIPELINES} raw connections with {PIPELINED} in flight"
    return [
        samples.row(f"{title}, rate, {pair.label}", "rate", "/s", higher_is_better=True),
        samples.row(f"{title}, broker CPU a message, {pair.label}", "broker_us", "us", higher_is_better=False),
    ]


def end_to_end(pair: Pair) -> list[Compared]:
    """From produce to consume through librdkafka, 500 messages a second."""
    topic = _created(pair, f"end-to-end-{pair.label}", 12)

    def measure(broker: BrokerProcess) -> Sample:
        return load("end_to_end", broker, topic=topic, seconds=_seconds(pair), broker_pid=broker.pid)

    return _end_to_end_rows(pair.turns(measure), "producer to consumer", pair.label)


def raw_end_to_end(pair: Pair) -> list[Compared]:
    """The same on raw connections."""
    number = numbers()

    def measure(broker: BrokerProcess) -> Sample:
        topic = f"end-to-end-{next(number)}"
        broker.create_topic(topic, 1)
        return load("raw_end_to_end", broker, topic=topic, wire=broker.wire, seconds=_seconds(pair), broker_pid=broker.pid)

    return _end_to_end_rows(pair.turns(measure), "raw producer to raw consumer", pair.label)


def _end_to_end_rows(samples: Samples, title: str, label: str) -> list[Compared]:
    return [
        samples.row(f"{title}, p50, {label}", "p50_us", "us", higher_is_better=False),
        samples.row(f"{title}, p99, {label}", "p99_us", "us", higher_is_better=False),
        samples.row(f"{title}, broker CPU a message, {label}", "broker_us", "us", higher_is_better=False),
    ]


def idle_consumers(pair: Pair) -> list[Compared]:
    """A thousand consumers that wait for messages at the end of twelve empty partitions."""
    topic = _created(pair, "idle", 12)

    def measure(broker: BrokerProcess) -> Sample:
        return load("idle", broker, topic=topic, consumers=IDLE_CONSUMERS, seconds=_seconds(pair), broker_pid=broker.pid)

    name = f"{IDLE_CONSUMERS:,} idle consumers that long-poll, broker CPU"
    return [pair.turns(measure).row(name, "broker_cores", "% of a core", higher_is_better=False, scale=100)]


def under_compaction(pair: Pair) -> list[Compared]:
    """One synchronous producer while another topic takes 10 MB/s of keyed messages and is compacted."""
    number = numbers()

    def measure(broker: BrokerProcess) -> Sample:
        topic = f"beside-{pair.label}-{next(number)}".replace(" ", "-")
        return load("under_compaction", broker, topic=topic, seconds=2 * _seconds(pair), broker_pid=broker.pid)

    samples = pair.turns(measure)
    title = "1 synchronous producer beside compaction"
    return [
        samples.row(f"{title}, p50, {pair.label}", "p50_us", "us", higher_is_better=False),
        samples.row(f"{title}, p99.9, {pair.label}", "p99.9_us", "us", higher_is_better=False),
    ]


def _created(pair: Pair, topic: str, partitions: int) -> str:
    """A topic on both; its name."""
    topic = topic.replace(" ", "-")
    for broker in pair.brokers:
        broker.create_topic(topic, partitions)
    return topic


def _seconds(pair: Pair) -> float:
    return 2.0 if pair.is_quick else 6.0
