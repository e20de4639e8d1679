"""A group whose members divide the partitions among themselves: one of them, the leader, does it for all.

                 a member joins              all have joined, or their time is up
    Empty  ------------------->  Preparing  -------------------->  Completing
      ^                            |   ^                             |     |
      |  no member is left         |   |  a member joins or is gone  |     |  the leader's assignment is durable
      +----------------------------+   +-----------------------------+     v
                                       +-------------------------------  Stable

Nothing here waits, writes or reads a clock: time comes in with each call, and what is to be done goes out as effects, in order.
A join or a sync comes with a ticket, under which it is answered at once or later.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.broker.groups.errors import (
    CoordinatorUnavailableError,
    FencedInstanceError,
    GroupFullError,
    RebalanceError,
    StaleGenerationError,
    UnknownMemberError,
)
from penstock.broker.groups.members import (
    NEXT_STATES,
    Effect,
    GroupRecord,
    GroupState,
    JoinRequest,
    JoinResponse,
    ListedMember,
    Member,
    MemberIdRequiredError,
    Reply,
    Store,
    SyncResponse,
    expiries,
)
from penstock.broker.groups.protocols import ProtocolOffers, check_same_protocol, chosen_protocol
from penstock.core.errors import PenstockError

# A new member waits for the first generation for as long as that takes, but for no longer than this.
NEW_MEMBER_TIMEOUT_S = 300.0
PENDING_MAX = 10_000


class ClassicGroup:
    """The state of one group."""

    def __init__(self, name: str, *, initial_delay_s: float = 0.0, members_max: int | None = None) -> None:
        self.name = name
        self.state = GroupState.EMPTY
        self.generation = 0
        self.protocol_type = ""
        self.protocol_name = ""
        self.leader_id = ""
        self.members: dict[str, Member] = {}
        self._initial_delay_s = initial_delay_s
        self._members_max = members_max
        self._by_instance: dict[str, str] = {}
        self._offers = ProtocolOffers()
        self._pending: dict[str, float] = {}  # ids handed out to clients that have not joined with them, and when they expire
        self._unsynced: set[str] = set()  # members of this generation that have not sent SyncGroup
        self._join_due: float | None = None  # when the generation begins without the members that have not rejoined
        self._sync_due: float | None = None  # when members that have not sent SyncGroup are removed
        self._initial_until: float | None = None  # while the first generation waits for more members: the latest time it begins
        self._newest_at = 0.0  # when the last new member came
        self._serial = 0
        self._storing: int | None = None  # serial of the assignment that is being written
        self._static_stores: dict[int, tuple[str, int, JoinResponse]] = {}
        self._effects: list[Effect] = []

    @classmethod
    def restored(
        cls, name: str, record: GroupRecord, now: float, *, initial_delay_s: float = 0.0, members_max: int | None = None
    ) -> ClassicGroup:
        """Returns a group as it was stored. The session timeouts of its members start now."""
        group = cls(name, initial_delay_s=initial_delay_s, members_max=members_max)
        group.generation = record.generation
        group.protocol_type, group.protocol_name = record.protocol_type, record.protocol_name
        for member in record.members:
            group._add(member)
            group._renew(member, now)
        # The first member that is added becomes the leader; here it is known.
        group.leader_id = record.leader_id
        if record.members:
            group.state = GroupState.STABLE
        group._check_invariants()
        return group

    @property
    def is_idle(self) -> bool:
        """Whether it has no members, and no client was given a member id to join with."""
        return self.state is GroupState.EMPTY and not self._pending

    def record(self, empty_since_ms: int) -> GroupRecord:
        """Returns what is stored of it."""
        since = 0 if self.members else empty_since_ms
        return GroupRecord(
            self.generation, since, self.protocol_type, self.protocol_name, self.leader_id, tuple(self.members.values())
        )

    def join(self, ticket: int, request: JoinRequest, new_id: str, now: float) -> list[Effect]:
        """Add a member, or take it into the next generation. `new_id` becomes the id of a member that has none."""
        try:
            self._check_room(request)
            own_ids = {request.member_id, self._by_instance.get(request.instance_id or "", "")}
            own = [self.members[member_id] for member_id in own_ids if member_id in self.members]
            self._offers.check(self.name, self.protocol_type, request, own, len(self.members) - len(own))
            if not request.member_id:
                self._join_new(ticket, request, new_id, now)
            elif request.member_id in self._pending:
                del self._pending[request.member_id]
                self._enter(ticket, request, request.member_id, now)
            else:
                self._rejoin(ticket, self._known(request.member_id, request.instance_id), request, now)
        except PenstockError as error:
            self._reply(ticket, error)
        self._complete_join_if_all(now)
        return self._take_effects()

    def sync(
        self,
        ticket: int,
        member_id: str,
        generation: int,
        assignments: Mapping[str, bytes],
        now: float,
        *,
        instance_id: str | None = None,
        protocol: tuple[str | None, str | None] = (None, None),
    ) -> list[Effect]:
        """Return the assignment of a member. The leader's request carries the assignments of all."""
        try:
            member = self._check_member(member_id, generation, instance_id)
            check_same_protocol(self.name, (self.protocol_type, self.protocol_name), protocol)
            self._sync(ticket, member, assignments, now)
        except PenstockError as error:
            self._reply(ticket, error)
        return self._take_effects()

    def heartbeat(self, member_id: str, generation: int, now: float, instance_id: str | None = None) -> None:
        """Extend the session of a member. RebalanceError if it must join again."""
        member = self._check_member(member_id, generation, instance_id)
        self._renew(member, now)
        if self.state is GroupState.PREPARING:
            raise RebalanceError(f"group {self.name!r} is rebalancing; join it again")

    def leave(self, member_id: str, now: float, instance_id: str | None = None) -> list[Effect]:
        """Remove a member that leaves. An empty member id removes the member with the instance id."""
        if not member_id and instance_id is not None:
            member_id = self._by_instance.get(instance_id, "")
        if self._pending.pop(member_id, None) is None:
            self._remove(self._known(member_id, instance_id), now)
        self._complete_join_if_all(now)
        return self._take_effects()

    def check_commit(
        self, member_id: str, generation: int, now: float, instance_id: str | None = None, *, in_transaction: bool = False
    ) -> None:
        """Raise unless this member may commit offsets now. It counts as a heartbeat."""
        if generation < 0 and self.state is GroupState.EMPTY:
            return
        if generation >= 0 or member_id or instance_id is not None:
            self._renew(self._check_member(member_id, generation, instance_id), now)
        elif not in_transaction:
            raise UnknownMemberError(f"group {self.name!r} has members, so only they set its positions; join it")
        if self.state is GroupState.COMPLETING and not in_transaction:
            raise RebalanceError(f"group {self.name!r} is rebalancing; sync first")

    def stored(self, serial: int, error: PenstockError | None, now: float) -> list[Effect]:
        """Take the outcome of a `Store` effect: it is durable if there is no error."""
        if serial in self._static_stores:
            self._respond_static(*self._static_stores.pop(serial), error)
        elif serial == self._storing:
            self._storing = None
            if self.state is GroupState.COMPLETING:
                if error is None:
                    self._become_stable(now)
                else:
                    self._fail_syncs(CoordinatorUnavailableError(f"the assignment is not stored: {error}; join again"), now)
                    self._prepare(now)
        return self._take_effects()

    def next_due(self) -> float | None:
        """Returns when `tick` must be called next, or None. Heartbeats only make it later."""
        times = [*self._pending.values(), *expiries(self.members.values())]
        times += (due for due in (self._join_due, self._sync_due) if due is not None)
        return min(times, default=None)

    def tick(self, now: float) -> list[Effect]:
        """Remove members whose sessions have expired, and begin a generation whose deadline has passed."""
        self._pending = {member_id: expires_at for member_id, expires_at in self._pending.items() if expires_at > now}
        for member in [member for member in self.members.values() if member.can_expire and member.expires_at <= now]:
            self._remove(member, now)
        if self._sync_due is not None and self._sync_due <= now:
            self._sync_due = None
            for member_id in sorted(self._unsynced):
                self._remove(self.members[member_id], now)
            if self.state is GroupState.COMPLETING:
                self._fail_syncs(CoordinatorUnavailableError("the assignment could not be stored in time; join again"), now)
                self._prepare(now)
        self._complete_join_if_all(now)
        if self._join_due is not None and self._join_due <= now:
            self._join_time_is_up(now)
        return self._take_effects()

    def release(self, error: PenstockError) -> list[Effect]:
        """Fail all requests that wait: the broker stops."""
        for member in self.members.values():
            self._fail_waiting(member, error)
        return self._take_effects()

    # Joining.

    def _check_room(self, request: JoinRequest) -> None:
        if self._members_max is None or self.state is GroupState.EMPTY:
            return
        member = self.members.get(request.member_id)
        if self.state is GroupState.PREPARING:
            # Members that have rejoined are in; one that has not can lose its place to them.
            is_in = member is not None and member.join_ticket is not None
            count = sum(other.join_ticket is not None for other in self.members.values())
        else:
            is_in = member is not None or request.instance_id in self._by_instance
            count = len(self.members)
        if not is_in and count >= self._members_max:
            if member is not None:
                self._drop(member)
            raise GroupFullError(f"group {self.name!r} is full: it has {self._members_max} members")

    def _join_new(self, ticket: int, request: JoinRequest, new_id: str, now: float) -> None:
        if request.instance_id is not None:
            if request.instance_id in self._by_instance:
                self._replace(ticket, request, new_id, now)
            else:
                self._enter(ticket, request, new_id, now)
        elif request.takes_id_first:
            # A client that disconnects before the response would leave a member behind that no client owns.
            if len(self._pending) >= PENDING_MAX:
                raise GroupFullError(f"{PENDING_MAX} members of group {self.name!r} were given an id and have not joined with it")
            self._pending[new_id] = now + request.session_timeout_ms / 1000
            raise MemberIdRequiredError(new_id)
        else:
            self._enter(ticket, request, new_id, now)

    def _enter(self, ticket: int, request: JoinRequest, member_id: str, now: float) -> None:
        """Add a member, which begins a new generation."""
        member = Member.of(member_id, request)
        member.join_ticket = ticket
        self._renew(member, now)
        if not self.members:
            self.protocol_type = request.protocol_type
        self._add(member)
        self._newest_at = now
        self._prepare(now)

    def _add(self, member: Member) -> None:
        self.members[member.id] = member
        self._offers.add(member)
        if member.instance_id is not None:
            self._by_instance[member.instance_id] = member.id
        if len(self.members) == 1:
            self.leader_id = member.id

    def _rejoin(self, ticket: int, member: Member, request: JoinRequest, now: float) -> None:
        is_same = member.protocols == request.protocols
        is_leader = member.id == self.leader_id
        if is_same and (self.state is GroupState.COMPLETING or (self.state is GroupState.STABLE and not is_leader)):
            # It has missed the response. A leader that joins a stable group asks for a rebalance.
            self._renew(member, now)
            self._reply(ticket, self._join_response(member))
            return
        self._wait_for_generation(ticket, member, request)
        self._prepare(now)

    def _wait_for_generation(self, ticket: int, member: Member, request: JoinRequest) -> None:
        self._fail_waiting(member, RebalanceError("the member has sent another request since"))
        self._offers.change(member, request.protocols)
        member.session_timeout_ms, member.rebalance_timeout_ms = request.session_timeout_ms, request.rebalance_timeout_ms
        member.client_id, member.client_host = request.client_id, request.client_host
        member.join_ticket = ticket
        if len(self.members) == 1:
            self.protocol_type = request.protocol_type

    def _replace(self, ticket: int, request: JoinRequest, new_id: str, now: float) -> None:
        """Give a static member that restarts the place of its old process, which is fenced; without a rebalance if possible."""
        old = self.members[self._by_instance[request.instance_id or ""]]
        self._fail_waiting(old, FencedInstanceError(f"instance {old.instance_id!r} has started again as {new_id!r}"))
        old_leader_id = self.leader_id
        # Its place in the order of members stays, and with it the lead.
        self.members = {(new_id if member.id == old.id else member.id): member for member in self.members.values()}
        self._by_instance[request.instance_id or ""] = new_id
        if self.leader_id == old.id:
            self.leader_id = new_id
        if old.id in self._unsynced:
            self._unsynced.remove(old.id)
            self._unsynced.add(new_id)
        old.id = new_id
        self._wait_for_generation(ticket, old, request)
        self._renew(old, now)
        if self.state is not GroupState.STABLE or chosen_protocol(list(self.members.values())) != self.protocol_name:
            self._prepare(now)
            return
        response = self._join_response(old)
        if request.skips_assignment:
            response = response._replace(skip_assignment=bool(response.members))
        else:
            # Told that it leads, it would assign partitions that are assigned already. Under its old id it does not see itself.
            response = response._replace(leader_id=old_leader_id, members=())
        self._static_stores[self._store()] = (new_id, ticket, response)

    def _respond_static(self, member_id: str, ticket: int, response: JoinResponse, error: PenstockError | None) -> None:
        member = self.members.get(member_id)
        # A generation that has begun since answers it with the others.
        if member is not None and member.join_ticket == ticket and self.state is GroupState.STABLE:
            member.join_ticket = None
            failed = CoordinatorUnavailableError(f"the member is not stored: {error}; join again")
            self._reply(ticket, response if error is None else failed)

    # Generations.

    def _prepare(self, now: float) -> None:
        """Start a rebalance: all members must join again."""
        if self.state is GroupState.PREPARING:
            return
        self._fail_syncs(RebalanceError(f"group {self.name!r} is rebalancing; join it again"), now)
        rebalance_s = max((member.rebalance_timeout_ms for member in self.members.values()), default=0) / 1000
        if self.state is GroupState.EMPTY and self._initial_delay_s:
            self._initial_until = now + rebalance_s
            self._join_due = min(now + self._initial_delay_s, self._initial_until)
        else:
            self._initial_until = None
            self._join_due = now + rebalance_s
        self._enter_state(GroupState.PREPARING)
        self._storing = self._sync_due = None
        self._unsynced.clear()

    def _fail_syncs(self, error: PenstockError, now: float) -> None:
        for member in self.members.values():
            if member.sync_ticket is not None:
                self._reply(member.sync_ticket, error)
                member.sync_ticket = None
                self._renew(member, now)

    def _complete_join_if_all(self, now: float) -> None:
        if self.state is not GroupState.PREPARING or self._pending:
            return
        # A first generation waits for more members until its delay has passed, unless those who came have left again.
        is_first = self._initial_until is not None
        if not self.members or (not is_first and all(member.join_ticket is not None for member in self.members.values())):
            self._begin_generation(now)

    def _join_time_is_up(self, now: float) -> None:
        if self._initial_until is not None:
            # Each new member restarts the delay, since others may follow it closely.
            quiet_at = min(self._newest_at + self._initial_delay_s, self._initial_until)
            if now < quiet_at:
                self._join_due = quiet_at
                return
        for member in [member for member in self.members.values() if member.join_ticket is None and member.instance_id is None]:
            self._drop(member)
        if self.members and all(member.join_ticket is None for member in self.members.values()):
            # Only static members that have not rejoined are left: wait until they do, or their sessions expire.
            self._initial_until = None
            self._join_due = now + max(member.rebalance_timeout_ms for member in self.members.values()) / 1000
            return
        self._begin_generation(now)

    def _begin_generation(self, now: float) -> None:
        """Form a generation of all that have joined. Static members that have not are part of it too, and may still sync."""
        self._join_due = self._initial_until = None
        self.generation += 1
        if not self.members:
            self._enter_state(GroupState.EMPTY)
            self.protocol_name = self.leader_id = ""
            self._store()
            return
        if self.members[self.leader_id].join_ticket is None:
            self.leader_id = next(member.id for member in self.members.values() if member.join_ticket is not None)
        self.protocol_name = chosen_protocol(list(self.members.values()))
        self._enter_state(GroupState.COMPLETING)
        self._unsynced = set(self.members)
        self._sync_due = now + max(member.rebalance_timeout_ms for member in self.members.values()) / 1000
        for member in self.members.values():
            member.is_new = False
            if member.join_ticket is not None:
                self._reply(member.join_ticket, self._join_response(member))
                member.join_ticket = None
                self._renew(member, now)

    def _join_response(self, member: Member) -> JoinResponse:
        listed: tuple[ListedMember, ...] = ()
        if member.id == self.leader_id:
            name = self.protocol_name
            listed = tuple(ListedMember(other.id, other.instance_id, other.metadata(name)) for other in self.members.values())
        return JoinResponse(member.id, self.generation, self.protocol_type, self.protocol_name, self.leader_id, listed)

    # Assignments.

    def _sync(self, ticket: int, member: Member, assignments: Mapping[str, bytes], now: float) -> None:
        if self.state is GroupState.PREPARING:
            raise RebalanceError(f"group {self.name!r} is rebalancing; join it again")
        self._unsynced.discard(member.id)
        self._renew(member, now)
        if self.state is GroupState.STABLE:
            self._sync_due = self._sync_due if self._unsynced else None
            self._reply(ticket, self._sync_response(member))
            return
        self._fail_waiting(member, RebalanceError("the member has sent another request since"))
        member.sync_ticket = ticket
        if member.id == self.leader_id:
            for other in self.members.values():
                other.assignment = assignments.get(other.id, b"")
            self._storing = self._store()

    def _become_stable(self, now: float) -> None:
        assert self._storing is None, "members are told an assignment before it is durable"
        self._enter_state(GroupState.STABLE)
        self._sync_due = self._sync_due if self._unsynced else None
        for member in self.members.values():
            if member.sync_ticket is not None:
                self._reply(member.sync_ticket, self._sync_response(member))
                member.sync_ticket = None
                self._renew(member, now)

    def _sync_response(self, member: Member) -> SyncResponse:
        return SyncResponse(self.protocol_type, self.protocol_name, member.assignment)

    # Members.

    def _known(self, member_id: str, instance_id: str | None) -> Member:
        if instance_id is not None:
            current = self._by_instance.get(instance_id)
            if current is not None and current != member_id:
                raise FencedInstanceError(f"instance {instance_id!r} of group {self.name!r} is now member {current!r}")
        member = self.members.get(member_id)
        if member is None or (instance_id is not None and member.instance_id != instance_id):
            raise UnknownMemberError(f"group {self.name!r} has no member {member_id!r}; join it again")
        return member

    def _check_member(self, member_id: str, generation: int, instance_id: str | None) -> Member:
        member = self._known(member_id, instance_id)
        if generation != self.generation:
            raise StaleGenerationError(f"group {self.name!r} is in generation {self.generation}, not {generation}; join it again")
        return member

    def _remove(self, member: Member, now: float) -> None:
        """Remove a member and start a rebalance."""
        self._fail_waiting(member, UnknownMemberError(f"group {self.name!r} has no member {member.id!r} any more; join it again"))
        self._drop(member)
        self._prepare(now)

    def _drop(self, member: Member) -> None:
        del self.members[member.id]
        self._offers.remove(member)
        self._unsynced.discard(member.id)
        if member.instance_id is not None:
            self._by_instance.pop(member.instance_id, None)
        if self.leader_id == member.id:
            self.leader_id = next(iter(self.members), "")

    def _fail_waiting(self, member: Member, error: PenstockError) -> None:
        for ticket in (member.join_ticket, member.sync_ticket):
            if ticket is not None:
                self._reply(ticket, error)
        member.join_ticket = member.sync_ticket = None

    def _renew(self, member: Member, now: float) -> None:
        member.expires_at = now + (NEW_MEMBER_TIMEOUT_S if member.is_new else member.session_timeout_ms / 1000)

    def _reply(self, ticket: int, response: JoinResponse | SyncResponse | PenstockError) -> None:
        self._effects.append(Reply(ticket, response))

    def _store(self) -> int:
        self._serial += 1
        self._effects.append(Store(self._serial))
        return self._serial

    def _take_effects(self) -> list[Effect]:
        self._check_invariants()
        effects, self._effects = self._effects, []
        return effects

    def _enter_state(self, state: GroupState) -> None:
        assert state in NEXT_STATES[self.state], f"group {self.name!r} cannot go from {self.state.value} to {state.value}"
        self.state = state

    def _check_invariants(self) -> None:
        """Assert what holds between two requests, in the same time however many members there are."""
        state, is_preparing = self.state, self.state is GroupState.PREPARING
        is_formed = state in (GroupState.COMPLETING, GroupState.STABLE)
        assert state is not GroupState.EMPTY or not self.members, "an empty group has members"
        assert not is_formed or (self.leader_id in self.members and self.protocol_name), "a generation has no leader or protocol"
        assert is_preparing == (self._join_due is not None), "a rebalance has no deadline, or a deadline no rebalance"
        assert is_preparing or self._initial_until is None, "a first generation is waited for outside of a rebalance"
        assert is_formed or self._sync_due is None, "syncs are waited for outside of a generation"
        assert state is GroupState.COMPLETING or self._storing is None, "an assignment is stored outside of a rebalance"
