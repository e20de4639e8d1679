"""Rates of writes: busy partitions are looked at every second, idle ones not until they are written to again."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest

from penstock.broker.queue_agent.write_rates import WriteRates
from penstock.broker.topic import Topic
from penstock.broker.topic_config import TopicConfig
from penstock.core.clock import SystemClock
from penstock.core.errors import UnavailableError
from penstock.queue.arrivals import Arrivals


class Counted:
    """What is read of a partition."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.written = 0
        self.arrivals = Arrivals(SystemClock())

    def write(self, rows: int) -> None:
        self.written += rows
        self.arrivals.tell()


class Weightless:
    def added(self, partition: Counted) -> int:
        return partition.written * 100


class World:
    """A topic of three partitions, the last of which another node serves."""

    def __init__(self) -> None:
        self.topic = Topic(name="t", id=UUID(int=1), tablets=(1, 2, 3), config=TopicConfig())
        self.partitions = {0: Counted(0), 1: Counted(1)}
        self.looks = 0
        self.changes = 0
        self.now = 1000.0
        self.rates = WriteRates(lambda: [self.topic], self.partition, Weightless(), lambda: self.changes)  # type: ignore[arg-type]

    def partition(self, _: Topic, number: int) -> Counted:
        self.looks += 1
        if number not in self.partitions:
            raise UnavailableError("elsewhere")
        return self.partitions[number]

    def pass_by(self, seconds: int) -> None:
        for _ in range(seconds):
            self.now += 1
            asyncio.run(self.rates.update(self.now))

    def rows(self, number: int, window: str = "current") -> float:
        return self.rates.of(self.topic, number, self.now).shown()[0][window]


@pytest.fixture
def world() -> World:
    return World()


def test_idle_partitions_are_not_looked_at_until_they_are_written_to(world: World) -> None:
    world.pass_by(1)
    assert world.looks == 3
    world.pass_by(100)
    assert world.looks == 3
    world.partitions[1].write(50)
    world.pass_by(1)
    assert (world.looks, world.rows(0), world.rows(1)) == (4, 0, 50), "the growth is of the last second, not of the idle time"
    assert world.partitions[1].arrivals.waiting == set(), "a busy one need not tell"
    world.pass_by(1)
    assert (world.looks, world.rows(1)) == (5, 0)
    world.pass_by(1000)
    looks = world.looks
    world.pass_by(100)
    assert world.looks == looks < 1000, "it is idle again"


def test_rates_of_an_idle_partition_fade_with_time(world: World) -> None:
    world.pass_by(1)
    world.partitions[0].write(3600)
    world.pass_by(600)
    before = world.rows(0, "1d")
    world.now += 86_400
    assert 0 < world.rows(0, "1d") < before / 2
    assert world.rates.of(world.topic, 0, world.now).shown()[1]["1d"] == pytest.approx(world.rows(0, "1d") * 100)


def test_a_partition_that_comes_here_or_starts_again_is_watched(world: World) -> None:
    world.pass_by(1)
    world.partitions[2] = Counted(2)
    world.partitions[0], before = Counted(0), world.partitions[0]
    world.changes += 1
    world.pass_by(1)
    assert before.arrivals.waiting == set()
    for number in (0, 2):
        world.partitions[number].write(7)
    world.pass_by(1)
    assert [world.rows(number) for number in range(3)] == [7, 0, 7]


def test_a_topic_that_is_gone_is_forgotten(world: World) -> None:
    world.pass_by(1)
    world.partitions[0].write(5)
    world.pass_by(1)
    assert world.rows(0) == 5
    gone, world.topic = world.topic, Topic(name="u", id=UUID(int=2), tablets=(4,), config=TopicConfig())
    world.changes += 1
    world.pass_by(1)
    assert world.rates.of(gone, 0, world.now).shown()[0]["1d"] == 0
