"""Penstock and a peer side by side, measured in turns after both have been warmed up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from bench.kafka_peer.brokers import BrokerProcess, PenstockProcess, load
from bench.kafka_peer.rows import LEVEL, Compared, Figure, Goal, show

WARM_PRODUCERS = 16
WARM_WINDOW_S = 3.0
WARM_WINDOWS_MIN = 5
WARM_S_MAX = 60.0
WARM_ALIKE = 3
WARM_WITHIN = 0.05
WARM_RULE = (
    f"{WARM_PRODUCERS} synchronous producers of 1 KiB on 12 partitions, in windows of {WARM_WINDOW_S:g} s, until the rates of "
    f"the last {WARM_ALIKE} of at least {WARM_WINDOWS_MIN} windows are within {WARM_WITHIN:.0%}, {WARM_S_MAX:g} s at most"
)

Sample = dict[str, float]


@dataclass(frozen=True, slots=True)
class WarmUp:
    """How one broker was warmed up."""

    broker: str
    label: str
    rates: list[float]
    is_steady: bool

    def __str__(self) -> str:
        rates = " ".join(f"{rate:,.0f}" for rate in self.rates)
        verdict = "steady" if self.is_steady else "not steady"
        return f"{self.broker}, {self.label}: {verdict} after {len(self.rates) * WARM_WINDOW_S:g} s ({rates} messages a second)"


@dataclass(frozen=True, slots=True)
class Samples:
    """What the rounds of one measurement gave, of both brokers."""

    ours: list[Sample]
    peer: list[Sample]
    has_goals: bool

    def figure(self, key: str, scale: float = 1.0) -> tuple[Figure, Figure]:
        """One of the measured values, of ours and of the peer."""
        ours, peer = (Figure.of([sample[key] * scale for sample in side]) for side in (self.ours, self.peer))
        return ours, peer

    def row(self, name: str, key: str, unit: str, *, higher_is_better: bool, goal: Goal = LEVEL, scale: float = 1.0) -> Compared:
        """A row of one of the measured values, with the cores that the load generator was using."""
        ours, peer = self.figure(key, scale)
        load_cores = [[sample["load_cores"] for sample in side if "load_cores" in sample] for side in (self.ours, self.peer)]
        cores = [Figure.of(values).median for values in load_cores if values]
        reached = goal if self.has_goals else None
        return show(Compared.of(name, unit, ours, peer, higher_is_better=higher_is_better, goal=reached, load_cores=cores))


class Pair:
    """Both brokers up at once on one disk; only one is under load at a time."""

    def __init__(
        self, directory: Path, kind: type[BrokerProcess], *, synced: bool, rounds: int, is_quick: bool, workers: int = 1
    ) -> None:
        self.ours: BrokerProcess = PenstockProcess(directory / "penstock", synced=synced, workers=workers)
        self.peer: BrokerProcess = kind(directory / kind.name, synced=synced)
        self.has_goals = kind.has_goals
        self.label = "fsync" if synced else "no fsync"
        self.is_synced = synced
        self.is_quick = is_quick
        self.rounds = rounds
        self.starts: dict[str, float] = {}

    @property
    def brokers(self) -> tuple[BrokerProcess, BrokerProcess]:
        """Ours and the peer."""
        return self.ours, self.peer

    def __enter__(self) -> Pair:
        try:
            for broker in self.brokers:
                listening = broker.start()
                started = perf_counter()
                broker.produce_first()
                self.starts[broker.name] = listening + perf_counter() - started
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.ours.stop()
        self.peer.stop()

    def warm_up(self) -> list[WarmUp]:
        """Load both until they get no faster; each row has a round of its own load before those that count, besides."""
        found = []
        for broker in self.brokers:
            broker.create_topic("warm-up", 12)
            result = load(
                "warm_up",
                broker,
                topic="warm-up",
                wire=broker.wire,
                producers=WARM_PRODUCERS,
                window_s=WARM_WINDOW_S,
                windows_min=WARM_WINDOWS_MIN,
                seconds_max=WARM_S_MAX,
                alike=WARM_ALIKE,
                within=WARM_WITHIN,
                broker_pid=broker.pid,
            )
            rates: list[float] = result["rates"]  # type: ignore[assignment]  # the one list among numbers
            found.append(WarmUp(broker.name, self.label, rates, bool(result["steady"])))
            print(f"warmed up {found[-1]}", flush=True)
        return found

    def turns(self, measure: Callable[[BrokerProcess], Sample], *, is_warm: bool = False) -> Samples:
        """Measure both in turns, each first in every other round. The first round warms both up for this very load and does not
        count, unless they are warm or what is measured cannot be warmed."""
        samples = Samples([], [], self.has_goals)
        for number in range(0 if is_warm else -1, self.rounds):
            for broker in self.brokers if number % 2 else reversed(self.brokers):
                sample = measure(broker)
                if number >= 0:
                    (samples.ours if broker is self.ours else samples.peer).append(sample)
        return samples

    def compare(
        self,
        name: str,
        unit: str,
        measure: Callable[[BrokerProcess], float],
        *,
        higher_is_better: bool,
        goal: Goal = LEVEL,
        is_warm: bool = False,
    ) -> Compared:
        """One row of one value."""
        samples = self.turns(lambda broker: {"value": measure(broker)}, is_warm=is_warm)
        return samples.row(name, "value", unit, higher_is_better=higher_is_better, goal=goal)
