"""The state machine of a classic group: who is in, who leads, who is put out, and when."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import Any

import pytest

from penstock.broker.groups import (
    CoordinatorUnavailableError,
    FencedInstanceError,
    GroupFullError,
    InconsistentProtocolError,
    JoinRequest,
    JoinResponse,
    MemberIdRequiredError,
    NotCoordinatorError,
    OfferedProtocol,
    RebalanceError,
    StaleGenerationError,
    SyncResponse,
    UnknownMemberError,
)
from penstock.broker.groups.classic import PENDING_MAX, ClassicGroup
from penstock.broker.groups.members import Effect, GroupState, Reply
from penstock.core.errors import PenstockError, UnavailableError

SESSION_S, REBALANCE_S = 10.0, 60.0
RANGE = (OfferedProtocol("range", b"about range"),)


class Driver:
    """A group, its time and its storage. What is to be stored is so at once, unless a test holds it back."""

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.group = ClassicGroup("g", **options)
        self.now = 1000.0
        self.answers: dict[int, JoinResponse | SyncResponse | PenstockError] = {}
        self.holds_stores = False
        self.held: list[int] = []
        self.stored = 0
        self._tickets = count(1)
        self._ids = count(1)

    @property
    def state(self) -> str:
        """Where the group stands."""
        return self.group.state.value

    def start_join(self, member_id: str = "", **fields: Any) -> int:
        """Join; the ticket of the answer."""
        fields = {"protocols": RANGE, "takes_id_first": False, **fields}
        asked = JoinRequest(
            member_id,
            fields.pop("protocol_type", "consumer"),
            session_timeout_ms=int(SESSION_S * 1000),
            rebalance_timeout_ms=int(REBALANCE_S * 1000),
            **fields,
        )
        ticket = next(self._tickets)
        self.apply(self.group.join(ticket, asked, f"m{next(self._ids)}", self.now))
        return ticket

    def join(self, member_id: str = "", **fields: Any) -> JoinResponse:
        """Join, with an answer at once."""
        return self.joined(self.start_join(member_id, **fields))

    def joined(self, ticket: int) -> JoinResponse:
        """The answer to a join that succeeded."""
        answer = self.answers[ticket]
        assert isinstance(answer, JoinResponse), answer
        return answer

    def start_sync(self, joined: JoinResponse, assignments: Mapping[str, bytes] | None = None, **fields: Any) -> int:
        """Sync; the ticket of the answer."""
        ticket = next(self._tickets)
        self.apply(self.group.sync(ticket, joined.member_id, joined.generation, assignments or {}, self.now, **fields))
        return ticket

    def sync(self, joined: JoinResponse, assignments: Mapping[str, bytes] | None = None, **fields: Any) -> bytes:
        """Sync, with an answer at once: the assignment."""
        answer = self.answers[self.start_sync(joined, assignments, **fields)]
        assert isinstance(answer, SyncResponse), answer
        return answer.assignment

    def beat(self, joined: JoinResponse, instance_id: str | None = None) -> None:
        """A heartbeat."""
        self.group.heartbeat(joined.member_id, joined.generation, self.now, instance_id)

    def leave(self, member_id: str, instance_id: str | None = None) -> None:
        """Leave."""
        self.apply(self.group.leave(member_id, self.now, instance_id))

    def wait(self, seconds: float) -> None:
        """Let time pass, stopping wherever the group wants to."""
        until = self.now + seconds
        while (due := self.group.next_due()) is not None and due <= until:
            self.now = max(self.now, due)
            self.apply(self.group.tick(self.now))
        self.now = until

    def apply(self, effects: list[Effect]) -> None:
        """Carry out what the group wants."""
        for effect in effects:
            if isinstance(effect, Reply):
                assert effect.ticket not in self.answers, "answered twice"
                self.answers[effect.ticket] = effect.response
            elif self.holds_stores:
                self.held.append(effect.serial)
            else:
                self.stored += 1
                self.apply(self.group.stored(effect.serial, None, self.now))

    def finish_store(self, error: PenstockError | None = None) -> None:
        """The delayed store succeeds, or fails."""
        self.apply(self.group.stored(self.held.pop(0), error, self.now))

    def restart(self) -> None:
        """Go on from what is kept."""
        self.group = ClassicGroup.restored("g", self.group.record(0), self.now, **self.options)

    def stable(self, members: int, **fields: Any) -> list[JoinResponse]:
        """A stable group of so many members, the leader first."""
        tickets: list[int] = []
        ids: list[str] = []
        for _ in range(members):
            new = self.start_join(**fields)
            tickets = [*(self.start_join(member_id, **fields) for member_id in ids), new]
            ids = [self.joined(ticket).member_id for ticket in tickets]
        joined = [self.joined(ticket) for ticket in tickets]
        followers = [self.start_sync(one) for one in joined[1:]]
        self.sync(joined[0], {one.member_id: one.member_id.encode() for one in joined})
        assert all(isinstance(self.answers[ticket], SyncResponse) for ticket in followers)
        return joined

    def error(self, ticket: int) -> PenstockError:
        """The answer to what was refused."""
        answer = self.answers[ticket]
        assert isinstance(answer, PenstockError), answer
        return answer


def test_a_member_alone_leads_the_first_generation() -> None:
    driver = Driver()
    joined = driver.join()
    assert (joined.generation, joined.leader_id, joined.protocol_name) == (1, joined.member_id, "range")
    assert [(one.member_id, one.metadata) for one in joined.members] == [(joined.member_id, b"about range")]
    assert driver.state == "CompletingRebalance"
    assert driver.sync(joined, {joined.member_id: b"all"}) == b"all"
    assert driver.state == "Stable"


def test_a_newer_client_is_told_its_id_before_it_is_a_member() -> None:
    driver = Driver()
    error = driver.error(driver.start_join(takes_id_first=True))
    assert isinstance(error, MemberIdRequiredError)
    assert driver.group.members == {}
    assert driver.join(error.member_id).member_id == error.member_id


def test_an_id_that_is_not_used_in_time_is_forgotten() -> None:
    driver = Driver()
    error = driver.error(driver.start_join(takes_id_first=True))
    assert isinstance(error, MemberIdRequiredError)
    driver.wait(SESSION_S)
    assert isinstance(driver.error(driver.start_join(error.member_id)), UnknownMemberError)
    assert driver.group.is_idle


def test_ids_are_not_given_out_without_end() -> None:
    driver = Driver()
    for _ in range(PENDING_MAX):
        assert isinstance(driver.error(driver.start_join(takes_id_first=True)), MemberIdRequiredError)
    assert isinstance(driver.error(driver.start_join(takes_id_first=True)), GroupFullError)
    driver.wait(SESSION_S)
    assert isinstance(driver.error(driver.start_join(takes_id_first=True)), MemberIdRequiredError)


def test_a_rebalance_waits_for_those_who_were_given_an_id() -> None:
    driver = Driver()
    (first,) = driver.stable(1)
    pending = driver.error(driver.start_join(takes_id_first=True))
    assert isinstance(pending, MemberIdRequiredError)
    again = driver.start_join(first.member_id)
    assert again not in driver.answers
    second = driver.start_join(pending.member_id)
    assert driver.joined(again).generation == driver.joined(second).generation == 2


def test_a_second_member_waits_until_the_first_has_joined_again() -> None:
    driver = Driver()
    (first,) = driver.stable(1)
    ticket = driver.start_join()
    assert ticket not in driver.answers
    with pytest.raises(RebalanceError):
        driver.beat(first)
    again = driver.join(first.member_id)
    second = driver.joined(ticket)
    assert again.generation == second.generation == 2
    assert again.leader_id == second.leader_id == first.member_id
    assert [one.member_id for one in again.members] == [first.member_id, second.member_id]
    assert second.members == ()


def test_each_member_is_given_its_own_share_and_none_if_the_leader_forgot_it() -> None:
    driver = Driver()
    ids = [joined.member_id for joined in driver.stable(3)]
    joined = [driver.start_join(member_id) for member_id in ids]
    leader, second, third = (driver.joined(ticket) for ticket in joined)
    waiting = [driver.start_sync(second), driver.start_sync(third)]
    assert not any(ticket in driver.answers for ticket in waiting)
    assert driver.sync(leader, {leader.member_id: b"a", third.member_id: b"c", "stranger": b"x"}) == b"a"
    assert driver.answers[waiting[0]] == SyncResponse("consumer", "range", b"")
    assert driver.answers[waiting[1]] == SyncResponse("consumer", "range", b"c")


def test_nobody_is_told_an_assignment_that_is_not_stored_yet() -> None:
    driver = Driver()
    joined = driver.join()
    driver.holds_stores = True
    ticket = driver.start_sync(joined, {joined.member_id: b"all"})
    assert ticket not in driver.answers
    driver.finish_store()
    assert driver.answers[ticket] == SyncResponse("consumer", "range", b"all")


def test_an_assignment_that_cannot_be_stored_is_divided_anew() -> None:
    driver = Driver()
    joined = driver.join()
    driver.holds_stores = True
    ticket = driver.start_sync(joined)
    driver.finish_store(UnavailableError("no disks"))
    assert isinstance(driver.error(ticket), CoordinatorUnavailableError)
    assert driver.join(joined.member_id).generation == 2


def test_an_assignment_that_takes_too_long_to_store_is_divided_anew() -> None:
    driver = Driver()
    joined = driver.join()
    driver.holds_stores = True
    ticket = driver.start_sync(joined)
    driver.wait(REBALANCE_S - 1)
    assert ticket not in driver.answers
    driver.wait(2)
    assert isinstance(driver.error(ticket), CoordinatorUnavailableError)
    assert driver.join(joined.member_id).generation == 2
    driver.finish_store()
    assert driver.state == "CompletingRebalance"


def test_a_rebalance_during_the_store_makes_the_assignment_void() -> None:
    driver = Driver()
    joined = driver.join()
    driver.holds_stores = True
    ticket = driver.start_sync(joined)
    driver.start_join()
    assert isinstance(driver.error(ticket), RebalanceError)
    driver.finish_store()
    assert driver.group.state is GroupState.PREPARING


def test_a_member_that_is_not_heard_of_is_put_out() -> None:
    driver = Driver()
    first, second = driver.stable(2)
    for _ in range(5):
        driver.wait(SESSION_S / 2)
        try:
            driver.beat(first)
        except RebalanceError:
            break
    again = driver.join(first.member_id)
    assert [one.member_id for one in again.members] == [first.member_id]
    with pytest.raises(UnknownMemberError):
        driver.beat(second)


def test_heartbeats_and_commits_keep_a_member_in() -> None:
    driver = Driver()
    (joined,) = driver.stable(1)
    for _ in range(10):
        driver.wait(SESSION_S * 0.9)
        driver.beat(joined)
        driver.wait(SESSION_S * 0.9)
        driver.group.check_commit(joined.member_id, joined.generation, driver.now)
    assert driver.group.state is GroupState.STABLE


def test_a_member_that_does_not_join_again_is_put_out_after_the_rebalance_timeout() -> None:
    driver = Driver()
    first, second = driver.stable(2)
    ticket = driver.start_join()
    driver.start_join(first.member_id)
    for _ in range(int(REBALANCE_S / SESSION_S * 2)):
        with pytest.raises(RebalanceError):
            driver.beat(second)  # alive, but it does not come
        driver.wait(SESSION_S / 2)
    assert driver.joined(ticket).generation == 3
    assert second.member_id not in driver.group.members


def test_the_lead_goes_to_another_if_the_leader_does_not_come() -> None:
    driver = Driver()
    first, second = driver.stable(2)
    driver.leave(first.member_id)
    again = driver.join(second.member_id)
    assert again.leader_id == second.member_id
    assert again.members


def test_a_member_that_does_not_ask_for_its_share_is_put_out() -> None:
    driver = Driver()
    first, second = driver.stable(2)
    driver.start_join(first.member_id)
    driver.start_join(second.member_id)
    leader = JoinResponse(first.member_id, driver.group.generation, "", "", "")
    driver.start_sync(leader)
    assert driver.group.state is GroupState.STABLE
    for _ in range(int(REBALANCE_S / SESSION_S * 2)):
        driver.wait(SESSION_S / 2)
        for member_id in (first.member_id, second.member_id):
            if member_id in driver.group.members and driver.group.state is GroupState.STABLE:
                driver.group.heartbeat(member_id, driver.group.generation, driver.now)
    assert second.member_id not in driver.group.members
    assert first.member_id in driver.group.members


def test_the_last_to_leave_empties_the_group_and_that_is_stored() -> None:
    driver = Driver()
    (joined,) = driver.stable(1)
    stored = driver.stored
    driver.leave(joined.member_id)
    assert (driver.group.state, driver.group.generation) == (GroupState.EMPTY, 2)
    assert driver.stored == stored + 1
    assert driver.group.record(123).empty_since_ms == 123
    assert driver.join().generation == 3


def test_who_has_missed_the_answer_is_given_it_again() -> None:
    driver = Driver()
    leader, follower = driver.stable(2)
    again = driver.join(follower.member_id)
    assert (again.generation, driver.group.state) == (follower.generation, GroupState.STABLE)
    # A leader that rejoins a stable group wants a rebalance.
    driver.start_join(leader.member_id)
    assert driver.group.state is GroupState.PREPARING


def test_a_follower_with_other_metadata_begins_a_rebalance() -> None:
    driver = Driver()
    _, follower = driver.stable(2)
    driver.start_join(follower.member_id, protocols=(OfferedProtocol("range", b"more topics"),))
    assert driver.group.state is GroupState.PREPARING


def test_a_stable_group_tells_a_late_member_its_share_again() -> None:
    driver = Driver()
    _, follower = driver.stable(2)
    assert driver.sync(follower) == follower.member_id.encode()


@pytest.mark.parametrize("generation", [-1, 0, 99])
def test_another_generation_is_fenced(generation: int) -> None:
    driver = Driver()
    (joined,) = driver.stable(1)
    stale = joined._replace(generation=generation)
    with pytest.raises(StaleGenerationError):
        driver.beat(stale)
    with pytest.raises(StaleGenerationError):
        driver.group.check_commit(stale.member_id, generation, driver.now)
    assert isinstance(driver.error(driver.start_sync(stale)), StaleGenerationError)


def test_strangers_are_unknown() -> None:
    driver = Driver()
    (joined,) = driver.stable(1)
    stranger = joined._replace(member_id="stranger")
    with pytest.raises(UnknownMemberError):
        driver.beat(stranger)
    with pytest.raises(UnknownMemberError):
        driver.leave("stranger")
    with pytest.raises(UnknownMemberError):
        driver.leave("", "no such instance")
    assert isinstance(driver.error(driver.start_sync(stranger)), UnknownMemberError)
    assert isinstance(driver.error(driver.start_join("stranger")), UnknownMemberError)


def test_whoever_is_no_member_commits_while_there_is_none() -> None:
    driver = Driver()
    driver.group.check_commit("", -1, driver.now)
    (joined,) = driver.stable(1)
    with pytest.raises(UnknownMemberError):
        driver.group.check_commit("", -1, driver.now)
    driver.group.check_commit("", -1, driver.now, in_transaction=True)
    driver.leave(joined.member_id)
    driver.group.check_commit("", -1, driver.now)


def test_a_member_commits_while_a_rebalance_waits_for_it_but_not_before_it_has_its_share() -> None:
    driver = Driver()
    (first,) = driver.stable(1)
    driver.start_join()
    driver.group.check_commit(first.member_id, first.generation, driver.now)
    again = driver.join(first.member_id)
    with pytest.raises(RebalanceError):
        driver.group.check_commit(again.member_id, again.generation, driver.now)


# Protocols.


def offers(*names: str) -> dict[str, Any]:
    return {"protocols": tuple(OfferedProtocol(name, name.encode()) for name in names)}


def test_the_protocol_that_most_like_best_is_taken_among_those_that_all_know() -> None:
    driver = Driver(initial_delay_s=1.0)
    tickets = [
        driver.start_join(**offers("sticky", "range", "round")),
        driver.start_join(**offers("round", "range")),
        driver.start_join(**offers("range", "round")),
        driver.start_join(**offers("round", "range", "other")),
    ]
    driver.wait(REBALANCE_S)
    # "sticky" is not known to all, so the first votes for range.
    assert {driver.joined(ticket).protocol_name for ticket in tickets} == {"range"}


def test_members_without_a_common_protocol_or_type_are_refused() -> None:
    driver = Driver()
    driver.stable(1)
    for wrong in (offers("other"), {"protocol_type": "connect"}, offers(), {"protocol_type": ""}):
        assert isinstance(driver.error(driver.start_join(**wrong)), InconsistentProtocolError)
    assert driver.group.state is GroupState.STABLE


def test_what_members_offer_counts_for_as_long_as_they_are_in_and_offer_it() -> None:
    driver = Driver()
    both = (*RANGE, OfferedProtocol("sticky", b"about sticky"))
    sticky = both[1:]
    (leader,) = driver.stable(1, protocols=both)
    other = driver.start_join()  # offers range alone
    driver.start_join(leader.member_id, protocols=both)
    assert isinstance(driver.error(driver.start_join(protocols=sticky)), InconsistentProtocolError)
    # A member is not held against itself; the other must still have something in common with it.
    assert isinstance(driver.error(driver.start_join(leader.member_id, protocols=sticky)), InconsistentProtocolError)
    driver.leave(driver.joined(other).member_id)
    third = driver.start_join(protocols=sticky)
    assert driver.join(leader.member_id, protocols=sticky).protocol_name == "sticky"
    assert isinstance(driver.error(driver.start_join()), InconsistentProtocolError)
    driver.leave(driver.joined(third).member_id)
    # As many as the members that are left have offered range, and are gone or offer it no more.
    assert isinstance(driver.error(driver.start_join()), InconsistentProtocolError)


def test_a_sync_for_another_protocol_is_refused() -> None:
    driver = Driver()
    joined = driver.join()
    for protocol in (("consumer", "other"), ("connect", "range")):
        assert isinstance(driver.error(driver.start_sync(joined, protocol=protocol)), InconsistentProtocolError)
    assert driver.sync(joined, {joined.member_id: b"x"}, protocol=("consumer", "range")) == b"x"


def test_a_member_alone_may_change_its_protocol() -> None:
    driver = Driver()
    (joined,) = driver.stable(1)
    assert driver.join(joined.member_id, **offers("other")).protocol_name == "other"


# Instances.


def test_an_instance_that_starts_again_takes_its_place_without_a_rebalance() -> None:
    driver = Driver()
    first = driver.join(instance_id="i1")
    driver.sync(first, {first.member_id: b"share"})
    again = driver.join(instance_id="i1")
    assert again.member_id != first.member_id
    assert (again.generation, driver.group.state) == (first.generation, GroupState.STABLE)
    assert again.skip_assignment
    assert [one.member_id for one in again.members] == [again.member_id]
    assert driver.sync(again) == b"share"
    with pytest.raises(FencedInstanceError):
        driver.beat(first, "i1")
    driver.beat(again, "i1")


def test_an_older_client_that_starts_again_is_not_told_that_it_leads() -> None:
    driver = Driver()
    first = driver.join(instance_id="i1")
    driver.sync(first, {first.member_id: b"share"})
    again = driver.join(instance_id="i1", skips_assignment=False)
    assert (again.leader_id, again.members, again.skip_assignment) == (first.member_id, (), False)
    assert driver.sync(again) == b"share"


def test_an_instance_is_told_of_its_new_id_only_when_that_is_stored() -> None:
    driver = Driver()
    first = driver.join(instance_id="i1")
    driver.sync(first)
    driver.holds_stores = True
    ticket = driver.start_join(instance_id="i1")
    assert ticket not in driver.answers
    driver.finish_store(UnavailableError("no disks"))
    assert isinstance(driver.error(ticket), CoordinatorUnavailableError)
    ticket = driver.start_join(instance_id="i1")
    driver.finish_store()
    assert driver.joined(ticket).generation == 1


def test_an_instance_that_was_waiting_is_fenced_by_its_newer_self() -> None:
    driver = Driver(initial_delay_s=1.0)
    old = driver.start_join(instance_id="i1")
    new = driver.start_join(instance_id="i1")
    assert isinstance(driver.error(old), FencedInstanceError)
    driver.wait(2.0)
    assert driver.joined(new).generation == 1
    assert len(driver.group.members) == 1


def test_an_instance_that_changes_the_protocol_begins_a_rebalance() -> None:
    driver = Driver()
    first = driver.join(instance_id="i1")
    driver.sync(first)
    assert driver.join(instance_id="i1", **offers("other")).generation == 2


def test_an_instance_that_starts_again_before_the_shares_are_known_begins_a_rebalance() -> None:
    driver = Driver()
    driver.join(instance_id="i1")
    again = driver.join(instance_id="i1")
    assert (again.generation, again.leader_id) == (2, again.member_id)


def test_an_instance_is_put_out_by_its_name() -> None:
    driver = Driver()
    joined = driver.join(instance_id="i1")
    driver.sync(joined)
    with pytest.raises(FencedInstanceError):
        driver.leave("another", "i1")
    driver.leave("", "i1")
    assert driver.group.state is GroupState.EMPTY


def test_instances_that_do_not_come_to_a_rebalance_stay_for_their_session() -> None:
    driver = Driver()
    first = driver.join(instance_id="i1")
    driver.sync(first)
    other = driver.start_join(instance_id="i2")
    driver.wait(SESSION_S * 0.9)
    assert other not in driver.answers
    driver.wait(SESSION_S)
    assert driver.joined(other).leader_id == driver.joined(other).member_id


# Sizes and times.


def test_a_full_group_takes_nobody_but_its_members() -> None:
    driver = Driver(members_max=2)
    first, second = driver.stable(2)
    assert isinstance(driver.error(driver.start_join()), GroupFullError)
    driver.start_join(first.member_id)
    assert driver.join(second.member_id).generation == 3


def test_the_first_member_waits_for_others_who_start_at_the_same_time() -> None:
    driver = Driver(initial_delay_s=3.0)
    tickets = []
    for _ in range(4):
        tickets.append(driver.start_join())
        driver.wait(2.0)
    assert not any(ticket in driver.answers for ticket in tickets)
    driver.wait(4.0)
    assert {driver.joined(ticket).generation for ticket in tickets} == {1}


def test_a_new_group_waits_no_longer_than_that_after_its_last_member() -> None:
    driver = Driver(initial_delay_s=3.0)
    first = driver.start_join()
    driver.wait(0.5)
    second = driver.start_join()
    driver.wait(2.8)
    assert first not in driver.answers
    driver.wait(0.3)
    assert driver.joined(first).generation == driver.joined(second).generation == 1


def test_the_wait_for_others_ends_with_the_rebalance_timeout() -> None:
    driver = Driver(initial_delay_s=3.0)
    first = driver.start_join()
    for _ in range(int(REBALANCE_S / 2)):
        driver.wait(2.0)
        driver.start_join()
    driver.wait(1.0)
    assert first in driver.answers


def test_a_group_that_all_leave_before_it_begins_is_empty() -> None:
    driver = Driver(initial_delay_s=3.0)
    ticket = driver.start_join()
    driver.leave("m1")
    assert isinstance(driver.error(ticket), UnknownMemberError)
    assert driver.group.state is GroupState.EMPTY


# Restarts.


def test_after_a_restart_members_go_on_as_if_nothing_was() -> None:
    driver = Driver()
    leader, follower = driver.stable(2)
    driver.restart()
    driver.wait(SESSION_S * 0.9)
    driver.beat(leader)
    driver.group.check_commit(follower.member_id, follower.generation, driver.now)
    assert driver.sync(follower) == follower.member_id.encode()
    assert driver.group.leader_id == leader.member_id


def test_after_a_restart_those_who_are_gone_are_put_out() -> None:
    driver = Driver()
    driver.stable(2)
    driver.restart()
    driver.wait(SESSION_S + 1)
    assert driver.group.state is GroupState.EMPTY


def test_after_a_restart_an_instance_is_known() -> None:
    driver = Driver()
    first = driver.join(instance_id="i1")
    driver.sync(first, {first.member_id: b"share"})
    driver.restart()
    again = driver.join(instance_id="i1")
    assert again.generation == first.generation
    assert driver.sync(again) == b"share"


def test_all_who_wait_are_answered_when_the_broker_stops() -> None:
    driver = Driver()
    leader, follower = driver.stable(2)
    ticket = driver.start_join(leader.member_id)
    driver.apply(driver.group.release(NotCoordinatorError("stopping")))
    assert isinstance(driver.error(ticket), NotCoordinatorError)
    driver.start_join(leader.member_id)
    again = driver.join(follower.member_id)
    ticket = driver.start_sync(again)
    driver.apply(driver.group.release(NotCoordinatorError("stopping")))
    assert isinstance(driver.error(ticket), NotCoordinatorError)


def test_a_request_that_is_sent_again_takes_the_place_of_the_first() -> None:
    driver = Driver()
    first, second = driver.stable(2)
    old = driver.start_join(first.member_id)
    new = driver.start_join(first.member_id)
    assert isinstance(driver.error(old), RebalanceError)
    again = driver.join(second.member_id)
    old = driver.start_sync(again)
    waiting = driver.start_sync(again)
    assert isinstance(driver.error(old), RebalanceError)
    driver.sync(driver.joined(new), {again.member_id: b"x"})
    assert driver.answers[waiting] == SyncResponse("consumer", "range", b"x")
