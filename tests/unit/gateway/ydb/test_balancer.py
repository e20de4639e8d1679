"""Assignment of partitions to readers: all of them, evenly, one reader each, and none moves before it is released."""

from __future__ import annotations

from collections import Counter
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from penstock.broker import TopicPartition
from penstock.gateway.ydb.balancer import Assign, Balancer, Effect, Revoke

A, B = UUID(int=1), UUID(int=2)


def _starts(effects: list[Effect]) -> dict[int, str]:
    assert all(isinstance(effect, Assign) for effect in effects), effects
    return {effect.queue.partition: effect.reader for effect in effects}


def test_the_first_reader_is_given_everything() -> None:
    balancer = Balancer()
    assert _starts(balancer.join("x", {A: None}, {A: 3})) == {0: "x", 1: "x", 2: "x"}


def test_the_second_is_given_half_once_the_first_has_released_it() -> None:
    balancer = Balancer()
    balancer.join("x", {A: None}, {A: 4})
    stops = balancer.join("y", {A: None}, {A: 4})
    assert [type(effect) for effect in stops] == [Revoke, Revoke]
    assert {effect.reader for effect in stops} == {"x"}
    for effect in stops:
        assert balancer.release("x", effect.queue) == [Assign("y", effect.queue)]


def test_what_a_reader_leaves_goes_to_the_others() -> None:
    balancer = Balancer()
    balancer.join("x", {A: None}, {A: 2})
    (stop,) = balancer.join("y", {A: None}, {A: 2})
    balancer.release("x", stop.queue)
    assert _starts(balancer.leave("x")) == {1 - stop.queue.partition: "y"}


def test_a_partition_on_its_way_goes_to_who_is_left() -> None:
    balancer = Balancer()
    balancer.join("x", {A: None}, {A: 2})
    (stop,) = balancer.join("y", {A: None}, {A: 2})
    assert balancer.leave("y") == []
    assert balancer.release("x", stop.queue) == [Assign("x", stop.queue)]


def test_more_readers_than_partitions_leave_some_without() -> None:
    balancer = Balancer()
    balancer.join("x", {A: None}, {A: 1})
    assert balancer.join("y", {A: None}, {A: 1}) == []
    assert balancer.leave("x") == [Assign("y", TopicPartition(A, 0))]


def test_a_reader_is_given_only_partitions_it_asked_for() -> None:
    balancer = Balancer()
    assert _starts(balancer.join("x", {A: frozenset({1})}, {A: 3})) == {1: "x"}
    assert _starts(balancer.join("y", {A: None}, {A: 3})) == {0: "y", 2: "y"}


def test_added_partitions_go_to_who_has_fewest() -> None:
    balancer = Balancer()
    balancer.join("x", {A: None}, {A: 1})
    balancer.join("y", {A: None}, {A: 1})
    assert _starts(balancer.resize({A: 2})) == {1: "y"}


class Balance(RuleBasedStateMachine):
    """Readers join, leave and release partitions at their own pace."""

    def __init__(self) -> None:
        super().__init__()
        self.balancer = Balancer()
        self.counts = {A: 3, B: 5}
        self.readers: dict[str, set[UUID]] = {}
        self.held: dict[TopicPartition, str] = {}
        self.asked: list[Revoke] = []
        self.names = 0

    def _apply(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Assign):
                assert effect.queue not in self.held, "a partition is given while another has it"
                assert effect.queue.topic_id in self.readers[effect.reader]
                self.held[effect.queue] = effect.reader
            else:
                assert self.held[effect.queue] == effect.reader
                self.asked.append(effect)

    @rule(topics=st.sampled_from([{A}, {B}, {A, B}]))
    def join(self, topics: set[UUID]) -> None:
        self.names += 1
        name = f"reader-{self.names:04}"
        self.readers[name] = topics
        self._apply(self.balancer.join(name, dict.fromkeys(topics), {topic: self.counts[topic] for topic in topics}))

    @precondition(lambda self: self.readers)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.readers)))
        del self.readers[name]
        self.asked = [stop for stop in self.asked if stop.reader != name]
        self.held = {queue: reader for queue, reader in self.held.items() if reader != name}
        self._apply(self.balancer.leave(name))

    @precondition(lambda self: self.asked)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        stop = self.asked.pop(data.draw(st.integers(0, len(self.asked) - 1)))
        del self.held[stop.queue]
        self._apply(self.balancer.release(stop.reader, stop.queue))

    @rule(topic=st.sampled_from([A, B]))
    def grow(self, topic: UUID) -> None:
        self.counts[topic] += 1
        self._apply(self.balancer.resize({topic: self.counts[topic]} if topic in self.balancer.topics else {}))

    @invariant()
    def all_is_read_evenly_once_no_release_is_pending(self) -> None:
        if self.asked:
            return
        for topic, count in self.counts.items():
            takers = [name for name, topics in self.readers.items() if topic in topics]
            if takers:
                load = Counter(self.held.get(TopicPartition(topic, number)) for number in range(count))
                assert load[None] == 0
                shares = [load[name] for name in takers]
                assert max(shares) - min(shares) <= 1


TestBalance = Balance.TestCase


@given(st.permutations(range(12)))
def test_commits_move_on_over_ranges_in_any_order(order: list[int]) -> None:
    from penstock.gateway.ydb.commit_ranges import CommitRanges

    commits = CommitRanges(100)
    done: set[int] = set()
    for number in order:
        commits.add(100 + number * 10, 110 + number * 10)
        done.add(number)
        whole = next(at for at in range(13) if at not in done)
        assert commits.committed == 100 + whole * 10
