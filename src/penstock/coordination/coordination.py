"""What the nodes of a cluster agree on: its identity, who runs, who leads, which groups there are, and who should own which
tablets.

It says who should do what. The right to write comes from storage alone, so a store that is late, away or rolled back delays
changes and loses nothing. With the store away, what was read stays readable here, and nothing new may start (`status`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from penstock.coordination.candidate import Candidate
from penstock.coordination.election import Leader, LeaderRecord, NotLeaderError, leader_of
from penstock.coordination.follower import Follower
from penstock.coordination.guarded_store import GuardedStore
from penstock.coordination.identity import (
    ClusterIdentity,
    ClusterMark,
    NoClusterError,
    check_identity,
    decode_identity,
    encode_identity,
)
from penstock.coordination.kept_tablets import KeptTablets
from penstock.coordination.key_layout import (
    GROUPS,
    IDENTITY,
    LEADER,
    MAINTENANCE,
    MEMBERS,
    NODES,
    OWNERS,
    REQUESTS,
    SECRET,
    STARTED,
    group_key,
    member_key,
    node_key,
    number_in,
)
from penstock.coordination.key_mirror import KeyChange, KeyMirror
from penstock.coordination.members import DuplicateMemberError, MemberRecord, check_registration, decode_member, encode_member
from penstock.coordination.node_ids import NodeRecord, claim_node_id, decode_node, draining_of, removal_of
from penstock.coordination.ownership import SYSTEM_TABLET_MAX, OwnerChange, OwnerMap
from penstock.coordination.port import (
    Change,
    CommitResult,
    Compare,
    CoordinationUnavailableError,
    Delete,
    Entry,
    KeyStore,
    Outcome,
    Put,
)
from penstock.coordination.requests import OperatorRequest, decode_request
from penstock.coordination.session import Session
from penstock.coordination.status import CoordinationStatus
from penstock.coordination.store_recovery import IsNewer, recover_store
from penstock.core.clock import boot_time
from penstock.core.errors import ConfigError, CorruptionError, InvalidRequestError

log = logging.getLogger(__name__)

ATTEMPTS: Final = 5
CLAIM_ATTEMPTS: Final = 100
"""Of all nodes that start at once, one gets its id at a time."""
TTL_S: Final = 5.0


class ClusterExistsError(ConfigError):
    """A cluster of this name exists and is another."""

    code = "cluster_exists"


class Coordination:
    """One node's view of the cluster, and what it may change in it. `now` never goes back and also counts sleep."""

    def __init__(self, store: KeyStore, *, now: Callable[[], float] = boot_time) -> None:
        self._store = GuardedStore(store, now)
        self._now = now
        self._mirror = KeyMirror()
        self.kept = KeptTablets(self._mirror, self.commit_as_leader)
        self._listeners: list[Callable[[list[KeyChange]], None]] = []
        self._follower: Follower | None = None
        self._following: asyncio.Task[None] | None = None
        self._session: Session | None = None
        self._record: MemberRecord | None = None
        self._candidate: Candidate | None = None
        self._owners: OwnerMap | None = None  # as last seen; None until it is asked for
        self._members: list[MemberRecord] | None = None  # as last seen; None until they are asked for

    # The cluster.

    async def create_cluster(self, identity: ClusterIdentity) -> ClusterIdentity:
        """Create a cluster unless it exists. A cluster of the same kind is returned as it is; another one is an error."""
        for _ in range(ATTEMPTS):
            entry = (await self._store.get(IDENTITY)).entry
            if entry is not None:
                existing = decode_identity(entry)
                if (existing.name, existing.kind) != (identity.name, identity.kind):
                    raise ClusterExistsError(
                        f"cluster {existing.name} of kind {existing.kind} exists (id {existing.cluster_id});"
                        f" to create one of kind {identity.kind}, choose another name"
                    )
                return existing
            # Refused or unknown: the next look tells whose cluster it became.
            await self._store.commit([Compare(IDENTITY, 0)], [Put(IDENTITY, encode_identity(identity))])
        raise CoordinationUnavailableError(f"cluster {identity.name} was not created in {ATTEMPTS} attempts; run it again")

    async def open(self, mark: ClusterMark | None = None) -> ClusterIdentity:
        """Check that the store is the one this node belongs to, read everything and follow it from then on."""
        snapshot = await self._store.get(IDENTITY)
        found = decode_identity(snapshot.entry) if snapshot.entry is not None else None
        identity = check_identity(found, snapshot.position, mark)
        self._follower = Follower(self._store, self._mirror, identity, self._tell, self._forget_revisions)
        await self._follower.list_all()
        self._following = asyncio.create_task(self._follower.run(), name="coordination-follower")
        return identity

    async def close(self) -> None:
        """Leave: end candidacy, lease and watch, and close the store."""
        if self._candidate is not None:
            await self._candidate.close()
        if self._session is not None:
            await self._session.close()
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)
        await self._store.close()

    @property
    def identity(self) -> ClusterIdentity:
        """The cluster, with the feature level that was last seen."""
        assert self._follower is not None, "open it first"
        return self._follower.identity

    @property
    def mark(self) -> ClusterMark:
        """What to keep on disk, to recognize the store at the next start."""
        position = self._store.position
        assert position is not None, "open it first"
        return ClusterMark(self.identity.cluster_id, self.identity.recoveries, position)

    @property
    def status(self) -> CoordinationStatus:
        """How the store is."""
        return self._store.status

    async def raise_feature_level(self, level: int) -> CommitResult:
        """Allow what all nodes know by now; never goes back."""
        entry = (await self._store.get(IDENTITY)).entry
        if entry is None:
            raise NoClusterError("the identity of the cluster is gone from the store")
        identity = decode_identity(entry)
        raised = msgspec.structs.replace(identity, feature_level=max(level, identity.feature_level))
        return await self.commit_as_leader([Compare(IDENTITY, entry.revision)], [Put(IDENTITY, encode_identity(raised))])

    async def recover_cluster(
        self, identity: ClusterIdentity, mark: ClusterMark, groups: Mapping[int, bytes], is_newer: IsNewer
    ) -> ClusterIdentity:
        """Bring a store that is empty or an old copy up to date: see `recover_store`."""
        return await recover_store(self._store.inner, identity, mark, groups, is_newer)

    async def restore_group(self, group_id: int, value: bytes) -> None:
        """Write the configuration of a group that disks know and a rebuilt store does not, unless it has one by now."""
        await self._store.commit([Compare(group_key(group_id), 0)], [Put(group_key(group_id), value)])

    # Nodes and members.

    async def claim_node_id(
        self, name: str, directory_id: str, *, replaces: bool = False, known_id: int = 0, above: int = 0
    ) -> int:
        """The id of this node: the one that its data directory has, or a new one, higher than `above`. With `replaces` it takes
        over the id of the node of this name, whose directory is lost and which must not run. `known_id` is the id that the
        directory had in a store that was rebuilt since."""
        known_id = known_id if self.identity.recoveries else 0
        for _ in range(CLAIM_ATTEMPTS):
            entries = (await self._store.scan(NODES)).entries
            claim = claim_node_id(entries, name, directory_id, replaces=replaces, known_id=known_id, above=above)
            if claim.change is None:
                return claim.node_id
            member = (await self._store.get(member_key(claim.node_id))).entry
            if member is not None:
                raise DuplicateMemberError(f"node {claim.node_id} ({name}) is running; stop it before it is replaced")
            # Refused or unknown: the next look tells who has the id.
            await self._store.commit([claim.change[0], Compare(member_key(claim.node_id), 0)], [claim.change[1]])
        raise CoordinationUnavailableError(f"node {name} was given no id in {CLAIM_ATTEMPTS} attempts; start it again")

    async def adopt_node(self, node_id: int, node: NodeRecord, group_id: int, configuration: bytes) -> None:
        """Write the node, the storage group and the tablets that a new cluster begins with. What is there already must be the
        same."""
        for key, value in (
            (node_key(node_id), msgspec.json.encode(node)),
            (group_key(group_id), configuration),
            (STARTED, b"1"),
        ):
            await self._store.commit([Compare(key, 0)], [Put(key, value)])
            entry = (await self._store.get(key)).entry
            if entry is None or entry.value != value:
                raise ClusterExistsError(f"{key} is not that of a new cluster; choose another name for it")

    async def remove_node(self, node_id: int) -> CommitResult:
        """Remove a node that does not run from the cluster for good; its id is not given again."""
        entry = (await self._store.get(node_key(node_id))).entry
        if entry is None:
            raise InvalidRequestError(f"there is no node {node_id}")
        compare, put = removal_of(entry)
        return await self.commit_as_leader([compare, Compare(member_key(node_id), 0)], [put])

    async def set_draining(self, node_id: int, *, is_draining: bool, disk: str | None = None) -> None:
        """Say whether the tablets of a node, or the VDisks of one of its disks, are to move to others. InvalidRequestError if
        there is no such node."""
        entry = (await self._store.get(node_key(node_id))).entry
        if entry is None or decode_node(entry).is_removed:
            raise InvalidRequestError(f"there is no node {node_id}; `penstock node list` shows them")
        change = draining_of(entry, is_draining=is_draining, disk=disk)
        if change is not None:
            self._check_done((await self.commit_as_leader([change[0]], [change[1]])).outcome, f"draining node {node_id}")

    @property
    def is_maintained(self) -> bool:
        """Whether an operator works on the cluster, so that no tablet is to be moved; as last seen."""
        return self._mirror.get(MAINTENANCE) is not None

    async def set_maintenance(self, *, is_on: bool) -> None:
        """Begin or end maintenance."""
        change = Put(MAINTENANCE, b"1") if is_on else Delete(MAINTENANCE)
        self._check_done((await self.commit_as_leader([], [change])).outcome, "changing the maintenance mode")

    async def register(self, record: MemberRecord, ttl_s: float = TTL_S) -> None:
        """Register this node under a lease that is kept from then on. DuplicateMemberError if another node has its id."""
        assert self._session is None, "this node is registered"
        self._record = record
        session = Session(self._store, ttl_s, self._now, self._put_member)
        await session.start()
        self._session = session

    async def update_member(self, record: MemberRecord) -> None:
        """Change what this node tells about itself."""
        assert self._session is not None
        assert self._record is not None
        self._record = record
        lease = self._session.lease
        if lease:
            await self._put_member(lease)

    def members(self) -> list[MemberRecord]:
        """The running nodes, as last seen."""
        if self._members is None:
            self._members = [decode_member(entry) for entry in self._mirror.scan(MEMBERS)]
        return self._members

    async def read_members(self) -> list[MemberRecord]:
        """The running nodes as they are now."""
        return [decode_member(entry) for entry in (await self._store.scan(MEMBERS)).entries]

    @property
    def is_registered(self) -> bool:
        """Whether the lease of this node lives for certain."""
        return self._session is not None and self._session.is_believed

    async def _put_member(self, lease: int) -> None:
        assert self._record is not None
        key, value = member_key(self._record.node_id), encode_member(self._record)
        for _ in range(ATTEMPTS):
            existing = (await self._store.get(key)).entry
            if existing is not None and (existing.value, existing.lease) == (value, lease):
                return
            revision = check_registration(existing, self._record)
            # Refused or unknown: the next look tells.
            if (await self._store.commit([Compare(key, revision)], [Put(key, value, lease)])).outcome is Outcome.DONE:
                return
        raise CoordinationUnavailableError(f"registering node {self._record.node_id} was not confirmed in {ATTEMPTS} attempts")

    def nodes(self) -> dict[int, NodeRecord]:
        """Every node that was ever part of the cluster, by id, as last seen."""
        return {number_in(entry.key): decode_node(entry) for entry in self._mirror.scan(NODES)}

    # The leader.

    def campaign(self) -> None:
        """Become the leader whenever there is none, for as long as this node is registered."""
        assert self._session is not None, "register first"
        assert self._record is not None
        if self._candidate is None:
            mine = LeaderRecord(node_id=self._record.node_id, instance_id=self._record.instance_id)
            self._candidate = Candidate(
                self._store,
                self._session,
                mine,
                seen=lambda: self.leader,
                revision=lambda: self._mirror.revision,
                is_eligible=self._should_lead,
            )
            self._listeners.append(self._candidate_look)
            self._candidate.start()

    async def resign(self) -> None:
        """Let another node lead. This one campaigns again unless it drains."""
        if self._candidate is not None:
            await self._candidate.resign()

    def _should_lead(self) -> bool:
        """A node that drains or leaves leads only if all others do so as well."""
        assert self._record is not None
        staying = self.staying()
        return not staying or self._record.node_id in staying

    def staying(self) -> set[int]:
        """The running nodes that neither drain nor are about to stop, as last seen."""
        draining = {node_id for node_id, node in self.nodes().items() if node.is_draining}
        return {member.node_id for member in self.members() if not member.is_leaving} - draining

    @property
    def leader(self) -> Leader | None:
        """Who leads, as last seen."""
        return leader_of(self._mirror.get(LEADER))

    @property
    def leadership(self) -> Leader | None:
        """The token of this node if it leads for certain; None otherwise."""
        return self._candidate.leadership() if self._candidate is not None else None

    async def challenge(self, leader: Leader) -> bool:
        """Replace a leader without waiting for its lease; whether that was done. Only for one that a majority cannot reach."""
        if self._candidate is None:
            raise NotLeaderError("this node is no candidate")
        return await self._candidate.challenge(leader)

    async def commit_as_leader(self, compares: Sequence[Compare], changes: Sequence[Change]) -> CommitResult:
        """Apply a transaction if this node still leads when it is applied. NotLeaderError if it does not."""
        leader = self.leadership
        if leader is None:
            raise NotLeaderError("this node does not lead; the leader decides")
        result = await self._store.commit([leader.compare(), *compares], changes)
        if result.outcome is Outcome.REFUSED:
            current = leader_of((await self._store.get(LEADER)).entry)
            if current is None or current.revision != leader.revision:
                raise NotLeaderError(f"node {current.record.node_id if current else 'none'} leads by now; nothing was changed")
        return result

    async def take_system_tablets(self) -> None:
        """Make this node the owner of the system tablets. NotLeaderError unless it leads at that time, by the store and not by
        what it has seen: one that was replaced may hear of it late."""
        assert self._record is not None
        owners = await self.read_owners()
        outcome = await self.assign(owners, 0, SYSTEM_TABLET_MAX, self._record.node_id)
        current = leader_of((await self._store.get(LEADER)).entry)
        mine = self.leadership
        if mine is None or current is None or current.revision != mine.revision:
            raise NotLeaderError("another node leads by now; this one takes nothing over")
        self._check_done(outcome, "taking over the system tablets")

    @staticmethod
    def _check_done(outcome: Outcome, what: str) -> None:
        if outcome is not Outcome.DONE:
            raise CoordinationUnavailableError(f"{what} is {outcome.value}; try again")

    def _forget_revisions(self) -> None:
        if self._candidate is not None:
            self._candidate.forget()

    def _candidate_look(self, changes: list[KeyChange]) -> None:
        if self._candidate is not None and any(change.key == LEADER for change in changes):
            self._candidate.look()

    # Groups and owners.

    def groups(self) -> dict[str, Entry]:
        """The configurations of storage groups by key, as last seen."""
        return {entry.key: entry for entry in self._mirror.scan(GROUPS)}

    async def read_group(self, group_id: int) -> Entry | None:
        """A configuration as it is now."""
        return (await self._store.get(group_key(group_id))).entry

    async def change_group(self, group_id: int, value: bytes | None, revision: int) -> CommitResult:
        """Write a configuration if it was last written by this revision (0: if there is none). None deletes it."""
        key = group_key(group_id)
        return await self.commit_as_leader([Compare(key, revision)], [Delete(key) if value is None else Put(key, value)])

    def owner_of(self, tablet_id: int) -> int | None:
        """The node that should own a tablet, as last seen."""
        return self.owners().owner_of(tablet_id)

    def owners(self) -> OwnerMap:
        """All owners, as last seen."""
        if self._owners is None:
            self._owners = OwnerMap(self._mirror.scan(OWNERS))
        return self._owners

    async def read_owners(self) -> OwnerMap:
        """All owners as they are now."""
        return OwnerMap((await self._store.scan(OWNERS)).entries)

    async def assign(self, owners: OwnerMap, first: int, last: int, node_id: int | None) -> Outcome:
        """Give tablets `first` to `last` to a node, in as many transactions as it takes. On any other outcome than DONE read the
        owners again: some of the transactions may have been applied."""
        return await self._commit_owners(owners, owners.plan(first, last, node_id))

    async def assign_each(self, owners: OwnerMap, wanted: Mapping[int, int | None]) -> Outcome:
        """Give each of these tablets to its node, or to none, many by a transaction and the first ones first; otherwise as
        `assign`."""
        return await self._commit_owners(owners, owners.plan_each(wanted))

    async def _commit_owners(self, owners: OwnerMap, changes: Iterator[OwnerChange]) -> Outcome:
        for change in changes:
            result = await self.commit_as_leader(change.compares, change.changes)
            if result.outcome is not Outcome.DONE:
                return result.outcome
            owners.apply(change, result.revision)
        return Outcome.DONE

    # The broker, and what operators ask for.

    @property
    def has_started(self) -> bool:
        """Whether a broker of this cluster has run, as last seen: then its tablets must exist."""
        return self._mirror.get(STARTED) is not None

    async def note_started(self) -> None:
        """Note that a broker runs."""
        if not self.has_started:
            await self.commit_as_leader([Compare(STARTED, 0)], [Put(STARTED, b"1")])

    async def share_secret(self, own: bytes) -> bytes:
        """The secret of the cluster: the one that is stored, or else this one, which is stored then."""
        for _ in range(CLAIM_ATTEMPTS):
            entry = (await self._store.get(SECRET)).entry
            if entry is not None:
                return entry.value
            # Refused or unknown: the next look tells.
            await self._store.commit([Compare(SECRET, 0)], [Put(SECRET, own)])
        raise CoordinationUnavailableError("the secret of the cluster cannot be agreed upon now; try again")

    def requests(self) -> dict[str, Entry]:
        """What operators asked for, by key, as last seen."""
        return {entry.key: entry for entry in self._mirror.scan(REQUESTS)}

    async def ask_leader(self, request_id: str, request: OperatorRequest) -> CommitResult:
        """Ask the leader to do something; `read_request` tells its answer."""
        key = REQUESTS + request_id
        return await self._store.commit([Compare(key, 0)], [Put(key, msgspec.json.encode(request))])

    async def read_request(self, request_id: str) -> OperatorRequest | None:
        """A request as it is now; None if it is not there."""
        entry = (await self._store.get(REQUESTS + request_id)).entry
        return None if entry is None else decode_request(entry)

    async def forget_request(self, request_id: str) -> CommitResult:
        """Delete a request, whatever became of it."""
        return await self._store.commit([], [Delete(REQUESTS + request_id)])

    async def answer_request(self, entry: Entry, answered: OperatorRequest) -> CommitResult:
        """Answer a request, as the leader."""
        put = Put(entry.key, msgspec.json.encode(answered))
        return await self.commit_as_leader([Compare(entry.key, entry.revision)], [put])

    # Watching.

    def listen(self, callback: Callable[[list[KeyChange]], None]) -> None:
        """Call back with every change of any key from now on."""
        self._listeners.append(callback)

    def unlisten(self, callback: Callable[[list[KeyChange]], None]) -> None:
        """Call this no more."""
        self._listeners.remove(callback)

    def _tell(self, changes: list[KeyChange]) -> None:
        self._members = None
        try:
            if self._owners is not None:
                self._owners.follow(changes)
        except CorruptionError:
            self._owners = None  # the next one that asks is told
        for listener in self._listeners:
            listener(changes)
