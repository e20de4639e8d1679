"""What flows through topics: rates, and counters of a bounded number of topics that neither jump nor count anything twice."""

from __future__ import annotations

from uuid import UUID

from penstock.broker import Topic, TopicConfig
from penstock.queue import QueueProbe
from penstock.server.metrics.flows import IDLE_S, NO_RATES, SHOWN_MAX, TopicFlows
from penstock.server.metrics.metric import OTHER


class World:
    """Topics with one probe each."""

    def __init__(self, count: int) -> None:
        self.flows = TopicFlows()
        self.probes = [QueueProbe() for _ in range(count)]
        self.topics = [Topic(f"t{number}", UUID(int=number + 1), (number,), TopicConfig()) for number in range(count)]
        self.now_s = 1000.0

    def pass_time(self, seconds: float = 1.0) -> None:
        self.now_s += seconds
        self.flows.update([(topic, [probe]) for topic, probe in zip(self.topics, self.probes, strict=True)], self.now_s)

    def shown(self) -> dict[str, int]:
        return {name: counts.messages_in for name, counts in self.flows.shown()}


def test_rates_are_what_came_since_the_last_look() -> None:
    world = World(2)
    world.pass_time()
    world.probes[0].wrote(1, 10, 1000)
    world.probes[1].read(4, 400)
    world.pass_time(2.0)
    assert world.flows.rates_of("t0")._asdict() | {"produce_messages_per_s": 5.0, "produce_bytes_per_s": 500.0} == (
        world.flows.rates_of("t0")._asdict()
    )
    assert world.flows.rates_of("t1").fetch_bytes_per_s == 200.0
    assert (world.flows.rates.produce_bytes_per_s, world.flows.rates.fetch_messages_per_s) == (500.0, 2.0)
    world.pass_time()
    assert world.flows.rates_of("t0") == NO_RATES == world.flows.rates_of("unknown")


def test_a_scrape_between_two_looks_does_not_change_the_rates() -> None:
    world = World(1)
    world.pass_time()
    world.probes[0].wrote(1, 10, 1000)
    world.flows.refresh([(world.topics[0], [world.probes[0]])], world.now_s + 0.5)
    assert world.shown() == {"t0": 10, OTHER: 0}
    world.pass_time()
    assert world.flows.rates.produce_messages_per_s == 10.0


def test_a_topic_with_a_series_is_not_counted_with_the_others() -> None:
    world = World(1)
    world.probes[0].wrote(1, 7, 70)
    world.pass_time()
    assert world.shown() == {"t0": 7, OTHER: 0}


def test_topics_beyond_the_limit_are_counted_together() -> None:
    world = World(SHOWN_MAX + 50)
    for probe in world.probes:
        probe.wrote(1, 2, 20)
    world.pass_time()
    shown = world.shown()
    assert len(shown) == SHOWN_MAX + 1
    assert shown[OTHER] == 100
    assert world.flows.hidden == 50
    assert sum(shown.values()) == 2 * len(world.probes)


def test_a_place_is_given_to_who_needs_it_and_no_counter_goes_back() -> None:
    world = World(SHOWN_MAX + 1)
    for probe in world.probes:
        probe.wrote(1, 2, 20)
    world.pass_time()
    late = next(topic.name for topic in world.topics if topic.name not in world.shown())
    world.probes[int(late[1:])].wrote(1, 3, 30)
    world.pass_time(IDLE_S + 1)
    shown = world.shown()
    assert (shown[late], shown[OTHER]) == (3, 2), "what it did without a series stays with the others"
    assert len(shown) == SHOWN_MAX + 1


def test_a_topic_made_again_starts_anew() -> None:
    world = World(1)
    world.probes[0].wrote(1, 7, 70)
    world.pass_time()
    world.topics[0] = world.topics[0]._replace(id=UUID(int=99))
    world.probes[0] = QueueProbe()
    world.pass_time()
    assert world.shown() == {OTHER: 0}
    world.probes[0].wrote(1, 1, 10)
    world.pass_time()
    assert world.shown() == {"t0": 1, OTHER: 0}
    assert world.flows.rates_of("t0").produce_messages_per_s == 1.0


def test_the_busiest_are_those_used_last() -> None:
    world = World(3)
    for probe in world.probes:
        probe.wrote(1, 1, 10)
    world.pass_time()
    world.probes[2].wrote(1, 1, 10)
    world.pass_time()
    assert world.flows.busiest(1) == ["t2"]
