"""A group whose coordinator assigns partitions, heartbeat by heartbeat."""

from __future__ import annotations

from uuid import UUID

import pytest

from penstock.broker import TopicPartition
from penstock.broker.groups import (
    ConsumerGroup,
    ConsumerGroupOptions,
    FencedInstanceError,
    FencedMemberError,
    GroupError,
    GroupFullError,
    Heartbeat,
    HeartbeatResponse,
    InvalidPatternError,
    StaleMemberError,
    UnknownMemberError,
    UnreleasedInstanceError,
    UnsupportedAssignorError,
)
from penstock.broker.groups.consumer_group import JOIN_EPOCH, LEAVE_EPOCH, PAUSE_EPOCH
from penstock.broker.groups.consumer_records import Member, MemberState
from penstock.broker.groups.subscriptions import Topics, TopicShape

A, B = UUID(int=1), UUID(int=2)
NONE: frozenset[TopicPartition] = frozenset()


class ManualClock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return 1e9 + self.now


class Fixture:
    """A group, its topics and its clock."""

    def __init__(self, options: ConsumerGroupOptions | None = None, **sizes: int) -> None:
        self.clock = ManualClock()
        self.group = ConsumerGroup("readers", options or ConsumerGroupOptions(), self.clock)
        self.topics = Topics(0, {})
        self.set_topics(**(sizes or {"a": 4}))

    def set_topics(self, **sizes: int) -> None:
        shapes = {name: TopicShape(UUID(int=1 + ord(name[0]) - ord("a")), size) for name, size in sizes.items()}
        self.topics = Topics(self.topics.version + 1, shapes)

    def beat(self, member: str, epoch: int, owned: frozenset[TopicPartition] | None = None, **more: object) -> HeartbeatResponse:
        return self.group.heartbeat(Heartbeat(member, epoch, owned=owned)._replace(**more), self.topics)  # type: ignore[arg-type]

    def join(self, member: str, *names: str, **more: object) -> HeartbeatResponse:
        wanted = frozenset(names or ("a",))
        return self.beat(member, JOIN_EPOCH, NONE, **{"names": wanted, "rebalance_timeout_ms": 60_000, **more})


def queues(*numbers: int, topic: UUID = A) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(topic, number) for number in numbers)


def test_the_first_member_gets_everything() -> None:
    fixture = Fixture()
    assert fixture.group.state == "Empty"
    assert fixture.join("one") == HeartbeatResponse("one", 1, 5000, queues(0, 1, 2, 3))
    assert fixture.group.state == "Stable"
    assert fixture.beat("one", 1) == HeartbeatResponse("one", 1, 5000, None)


def test_a_partition_moves_only_when_it_was_given_up() -> None:
    fixture = Fixture()
    fixture.join("one")
    second = fixture.join("two")
    assert second == HeartbeatResponse("two", 2, 500, NONE), "asked back soon, for it waits"
    assert fixture.group.state == "Reconciling"
    told = fixture.beat("one", 1)
    assert told == HeartbeatResponse("one", 1, 5000, queues(0, 1))
    assert fixture.beat("two", 2).assigned is None
    assert fixture.beat("one", 1, queues(0, 1, 2, 3)).epoch == 1, "it still has them"
    assert fixture.beat("one", 1).epoch == 1, "it does not say"
    assert fixture.beat("one", 1, queues(0, 1)) == HeartbeatResponse("one", 2, 5000, None)
    assert fixture.beat("two", 2) == HeartbeatResponse("two", 2, 5000, queues(2, 3))
    assert fixture.group.state == "Stable"


def test_what_a_member_gave_up_can_come_back_to_it_at_once() -> None:
    fixture = Fixture()
    fixture.join("one")
    fixture.join("two")
    fixture.beat("one", 1)
    fixture.beat("two", LEAVE_EPOCH)
    assert fixture.beat("one", 1, queues(0, 1)) == HeartbeatResponse("one", 3, 5000, queues(0, 1, 2, 3))


def test_a_second_revocation_is_one_epoch_further() -> None:
    fixture = Fixture(a=6)
    fixture.join("one")
    fixture.join("two")
    fixture.beat("one", 1)
    fixture.join("three")
    answer = fixture.beat("one", 1, queues(0, 1, 2))
    assert answer == HeartbeatResponse("one", 2, 5000, queues(0, 1))
    assert fixture.group.members["one"].state is MemberState.UNREVOKED
    assert fixture.beat("one", 2, queues(0, 1)).epoch == 3


def test_a_member_that_leaves_makes_room() -> None:
    fixture = Fixture()
    fixture.join("one")
    assert fixture.beat("one", LEAVE_EPOCH) == HeartbeatResponse("one", LEAVE_EPOCH)
    assert fixture.group.state == "Empty"
    assert fixture.group.record.empty_since_ms == int(fixture.clock.wall() * 1000)
    assert fixture.join("two") == HeartbeatResponse("two", 3, 5000, queues(0, 1, 2, 3))
    assert fixture.group.record.empty_since_ms == 0


def test_between_a_departure_and_the_next_heartbeat_the_group_is_assigning() -> None:
    fixture = Fixture()
    fixture.join("one")
    fixture.join("two")
    fixture.beat("two", LEAVE_EPOCH)
    assert fixture.group.state == "Assigning"


def test_who_misses_an_answer_may_repeat_itself() -> None:
    fixture = Fixture()
    fixture.join("one")
    fixture.join("two")
    fixture.beat("one", 1)
    lost = fixture.beat("one", 1, queues(0, 1))
    assert lost.epoch == 2
    assert fixture.beat("one", 1, queues(0, 1)) == lost._replace(assigned=queues(0, 1))


@pytest.mark.parametrize(("epoch", "owned"), [(1, None), (1, queues(0, 2)), (0 + 3, queues(0, 1))])
def test_a_wrong_epoch_is_fenced(epoch: int, owned: frozenset[TopicPartition] | None) -> None:
    fixture = Fixture()
    fixture.join("one")
    fixture.join("two")
    fixture.beat("one", 1)
    fixture.beat("one", 1, queues(0, 1))
    with pytest.raises(FencedMemberError):
        fixture.beat("one", epoch, owned)


def test_a_stranger_is_unknown() -> None:
    fixture = Fixture()
    for epoch in (1, LEAVE_EPOCH):
        with pytest.raises(UnknownMemberError):
            fixture.beat("stranger", epoch)


def test_a_member_that_starts_over_is_told_what_it_has() -> None:
    fixture = Fixture()
    fixture.join("one")
    assert fixture.join("one") == HeartbeatResponse("one", 1, 5000, queues(0, 1, 2, 3))
    assert fixture.group.record.epoch == 1


def test_a_full_heartbeat_is_answered_in_full() -> None:
    fixture = Fixture()
    fixture.join("one")
    full = fixture.beat("one", 1, queues(0, 1, 2, 3), names=frozenset({"a"}), rebalance_timeout_ms=60_000)
    assert full.assigned == queues(0, 1, 2, 3)


def test_a_member_that_lacks_something_is_told_again() -> None:
    fixture = Fixture()
    fixture.join("one")
    assert fixture.beat("one", 1, queues(0)).assigned == queues(0, 1, 2, 3)


def test_another_subscription_is_another_assignment() -> None:
    fixture = Fixture(a=2, b=2)
    fixture.join("one")
    assert fixture.beat("one", 1, names=frozenset({"b"})) == HeartbeatResponse("one", 1, 5000, NONE)
    assert fixture.beat("one", 1, NONE) == HeartbeatResponse("one", 2, 5000, queues(0, 1, topic=B))


def test_a_topic_that_grows_or_goes_is_noticed() -> None:
    fixture = Fixture(a=2)
    fixture.join("one", "a", "b")
    fixture.set_topics(a=3)
    assert fixture.beat("one", 1) == HeartbeatResponse("one", 2, 5000, queues(0, 1, 2))
    fixture.set_topics(a=3, b=1)
    assert fixture.beat("one", 2) == HeartbeatResponse("one", 3, 5000, queues(0, 1, 2) | queues(0, topic=B))
    fixture.set_topics(b=1)
    assert fixture.beat("one", 3) == HeartbeatResponse("one", 3, 5000, queues(0, topic=B))
    assert fixture.beat("one", 3, queues(0, topic=B)).epoch == 4


def test_topics_of_others_are_no_change() -> None:
    fixture = Fixture(a=2)
    fixture.join("one")
    fixture.set_topics(a=2, c=5)
    assert fixture.beat("one", 1) == HeartbeatResponse("one", 1, 5000, None)


def test_a_pattern_subscribes_to_what_comes_later() -> None:
    fixture = Fixture(a=1)
    fixture.join("one", "nothing", pattern="[ab].*")
    fixture.set_topics(a=1, b=1, c=1)
    assert fixture.beat("one", 1).assigned == queues(0) | queues(0, topic=B)
    assert fixture.beat("one", 2, pattern="").epoch == 2
    assert fixture.beat("one", 2, NONE) == HeartbeatResponse("one", 3, 5000, None)


def test_a_pattern_for_everything_leaves_out_the_broker_s_own_topics() -> None:
    fixture = Fixture(a=1)
    shapes = {**fixture.topics.by_name, "__consumer_offsets": TopicShape(B, 5)}
    fixture.topics = Topics(7, shapes)
    assert fixture.join("one", "a", pattern=".*").assigned == queues(0)


def test_a_wrong_pattern_changes_nothing() -> None:
    fixture = Fixture()
    with pytest.raises(InvalidPatternError):
        fixture.join("one", pattern="(")
    assert not fixture.group.members
    assert fixture.group.take_changes().commands == ()


def test_only_known_assignors() -> None:
    with pytest.raises(UnsupportedAssignorError):
        Fixture().join("one", assignor="round-robin")


def test_the_assignor_that_most_ask_for_is_used() -> None:
    fixture = Fixture(a=2, b=2)
    fixture.join("one", "a", "b", assignor="range")
    fixture.join("two", "a", "b")
    assert fixture.group.assignor == "range"
    assert fixture.group.targets == {
        "one": queues(0) | queues(0, topic=B),
        "two": queues(1) | queues(1, topic=B),
    }


def test_another_assignor_is_another_assignment() -> None:
    fixture = Fixture()
    fixture.join("one")
    fixture.beat("one", 1, assignor="range")
    assert (fixture.group.record.epoch, fixture.group.record.assignor) == (2, "range")


def test_a_silent_member_is_removed_after_its_session() -> None:
    fixture = Fixture()
    fixture.join("one")
    fixture.clock.now += 44
    fixture.join("two")
    assert fixture.group.next_expiry() == 1045
    fixture.clock.now += 1
    fixture.group.expire()
    assert fixture.group.members.keys() == {"two"}
    assert fixture.beat("two", 2) == HeartbeatResponse("two", 3, 5000, queues(0, 1, 2, 3))


def test_who_does_not_give_up_in_time_is_removed() -> None:
    fixture = Fixture()
    fixture.join("one", rebalance_timeout_ms=50_000)
    fixture.join("two")
    fixture.beat("one", 1)
    for _ in range(2):
        fixture.clock.now += 25
        fixture.group.expire()
        members = set(fixture.group.members)
        for member in members:
            fixture.beat(member, fixture.group.members[member].epoch, queues(0, 1, 2, 3) if member == "one" else None)
    assert set(fixture.group.members) == {"two"}
    assert fixture.group.members["two"].assigned == queues(0, 1, 2, 3)


def test_a_static_member_comes_back_to_its_partitions() -> None:
    fixture = Fixture()
    fixture.join("one", instance_id="host-1")
    fixture.join("two")
    fixture.beat("one", 1, queues(0, 1, 2, 3), instance_id="host-1")
    fixture.beat("one", 1, queues(0, 1), instance_id="host-1")
    fixture.beat("two", 2)
    assert fixture.beat("one", PAUSE_EPOCH, instance_id="host-1").epoch == PAUSE_EPOCH
    assert fixture.beat("two", 2).assigned is None
    assert fixture.join("one-again", instance_id="host-1") == HeartbeatResponse("one-again", 2, 5000, queues(0, 1))
    assert fixture.group.record.epoch == 2
    with pytest.raises(FencedInstanceError):
        fixture.beat("one", 2, instance_id="host-1")


def test_a_static_member_may_come_back_under_its_old_id() -> None:
    fixture = Fixture()
    fixture.join("one", instance_id="host-1")
    fixture.beat("one", PAUSE_EPOCH, instance_id="host-1")
    assert fixture.join("one", instance_id="host-1") == HeartbeatResponse("one", 1, 5000, queues(0, 1, 2, 3))


def test_a_static_member_that_stays_away_loses_its_place() -> None:
    fixture = Fixture()
    fixture.join("one", instance_id="host-1")
    fixture.beat("one", PAUSE_EPOCH, instance_id="host-1")
    fixture.clock.now += 46
    fixture.group.expire()
    assert fixture.group.state == "Empty"


def test_an_instance_id_is_used_by_one_member() -> None:
    fixture = Fixture()
    fixture.join("one", instance_id="host-1")
    with pytest.raises(UnreleasedInstanceError):
        fixture.join("two", instance_id="host-1")
    with pytest.raises(FencedInstanceError):
        fixture.beat("two", LEAVE_EPOCH, instance_id="host-1")
    with pytest.raises(UnknownMemberError):
        fixture.beat("one", 1, instance_id="host-2")


def test_only_static_members_pause() -> None:
    fixture = Fixture()
    fixture.join("one")
    with pytest.raises(GroupError):
        fixture.beat("one", PAUSE_EPOCH)


def test_a_full_group_takes_no_one() -> None:
    fixture = Fixture(ConsumerGroupOptions(members_max=1))
    fixture.join("one")
    with pytest.raises(GroupFullError):
        fixture.join("two")
    fixture.join("one")


def test_positions_are_taken_from_members_in_their_epoch() -> None:
    fixture = Fixture()
    fixture.group.check_commit("", -1)
    fixture.join("one")
    fixture.group.check_commit("one", 1)
    for epoch in (0, 2, -1):
        with pytest.raises(StaleMemberError):
            fixture.group.check_commit("one", epoch)
    for member in ("", "two"):
        with pytest.raises(UnknownMemberError):
            fixture.group.check_commit(member, -1)


def test_what_cannot_be_kept_has_not_happened() -> None:
    fixture = Fixture()
    fixture.join("one", instance_id="host-1")
    fixture.join("two")
    fixture.beat("one", 1)
    fixture.group.take_changes()
    before = _state_of(fixture.group)
    fixture.beat("one", 1, queues(0, 1))
    fixture.beat("two", 2)
    fixture.join("three")
    fixture.beat("two", LEAVE_EPOCH)
    fixture.group.roll_back(fixture.group.take_changes())
    assert _state_of(fixture.group) == before
    assert fixture.group.take_changes().commands == ()
    assert fixture.beat("one", 1, queues(0, 1)) == HeartbeatResponse("one", 2, 5000, None)
    assert fixture.beat("two", 2).assigned == queues(2, 3)


def test_an_unchanged_group_writes_nothing() -> None:
    fixture = Fixture()
    fixture.join("one")
    assert len(fixture.group.take_changes().commands) == 3
    fixture.beat("one", 1)
    assert fixture.group.take_changes().commands == ()


def _state_of(group: ConsumerGroup) -> tuple[object, dict[str, Member], dict[str, frozenset[TopicPartition]]]:
    return group.record, dict(group.members), dict(group.targets)


def test_members_that_come_together_are_divided_once() -> None:
    fixture = Fixture()
    joining = Heartbeat("one", JOIN_EPOCH, owned=NONE, names=frozenset({"a"}), rebalance_timeout_ms=60_000)
    wrong = joining._replace(member_id="three", assignor="none")
    answers = fixture.group.heartbeats([joining, joining._replace(member_id="two"), wrong], fixture.topics)
    assert answers[:2] == [HeartbeatResponse("one", 1, 5000, queues(0, 2)), HeartbeatResponse("two", 1, 5000, queues(1, 3))]
    assert isinstance(answers[2], UnsupportedAssignorError)
    assert fixture.group.state == "Stable"


def test_who_leaves_while_it_speaks_is_gone() -> None:
    fixture = Fixture()
    fixture.join("one")
    fixture.join("two")
    spoken, gone = fixture.group.heartbeats([Heartbeat("one", 1), Heartbeat("one", LEAVE_EPOCH)], fixture.topics)
    assert isinstance(spoken, UnknownMemberError)
    assert gone == HeartbeatResponse("one", LEAVE_EPOCH)
    assert fixture.beat("two", 2).assigned == queues(0, 1, 2, 3)
