"""The leader's task that places tablets: follows nodes, writes owners, and asks nodes to host and release tablets.

Owners are written before a node is asked to host, and after the old owner has released. What fails on the way is not undone: the
next step looks at the owners and at what runs where, and goes on from there. With the store away nothing moves.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Final

from penstock.coordination import Coordination, KeyChange, NotLeaderError, OwnerMap
from penstock.core.clock import Clock
from penstock.core.errors import InvalidRequestError, PenstockError, UnavailableError
from penstock.placement.background import BackgroundWork
from penstock.placement.cluster_view import CatalogTablet, GroupNodes, Inventory, Reachability
from penstock.placement.hosting import Hosting
from penstock.placement.node_health import NodeHealth
from penstock.placement.node_tablets import HostOrder, NodeTablets, PlacedTablet, TabletState
from penstock.placement.owners import Owners
from penstock.placement.plan import (
    Move,
    MoveReason,
    NodeState,
    NodeView,
    TabletView,
    Takeover,
    choose,
    move_trouble,
    plan,
)
from penstock.placement.probe import PlacementProbe
from penstock.placement.tablet_health import TabletHealth
from penstock.placement.troubles import DOWN_S, troubles_of

log = logging.getLogger(__name__)

LOOK_S: Final = 0.1
POLL_S: Final = 1.0
PAUSE_FACTOR: Final = 4.0
MOVES_AT_ONCE: Final = 8
BALANCE_AT_ONCE: Final = 2  # no hurry: each move is a pause for the clients of a partition that works
TAKEN_OVER_S: Final = 15.0
"""After tablets were taken over none moves for balance for so long: clients are coming back, and so may be the lost node."""
TAKEOVERS_AT_ONCE: Final = 96
PLACE_S: Final = 10.0


class Placement:
    """Places tablets while this node leads: start `run` when the broker serves, and cancel it before that stops. `loads` are
    bytes a second of tablets, as this node heard of them before."""

    def __init__(
        self,
        coordination: Coordination,
        peers: Reachability,
        nodes: NodeTablets,
        inventory: Inventory,
        clock: Clock,
        *,
        loads: Mapping[int, float] | None = None,
    ) -> None:
        self._coordination = coordination
        self._peers = peers
        self._inventory = inventory
        self._clock = clock
        self._hosting = Hosting(nodes, loads or {})
        self._owners = Owners(coordination)
        self.probe = PlacementProbe()
        self._node_health = NodeHealth(clock.monotonic())
        self._tablet_health = TabletHealth()
        self._nodes: dict[int, NodeView] = {}
        self._looked = asyncio.Event()
        self._woken = asyncio.Event()
        self._is_polling = False
        self._placing: set[int] = set()  # new tablets that `place` is busy with
        self._moving: dict[int, Move] = {}
        self._kept: Mapping[int, int] = {}  # the nodes that operators have moved tablets to
        self._homeless: tuple[int, ...] = ()
        self._took_over_at = -inf
        self._background = BackgroundWork(self._owners.forget)

    async def run(self) -> None:
        """Place tablets until cancelled."""
        self._coordination.listen(self._wake)
        polled_at = -POLL_S
        try:
            while True:
                now = self._clock.monotonic()
                try:
                    if self._may_decide:
                        if await self._look(now):
                            await self._act(now)
                        if now - polled_at >= POLL_S and not self._is_polling:
                            polled_at, self._is_polling = now, True
                            self._background.spawn(self._poll(), "poll-tablets")
                except NotLeaderError as error:
                    log.info("this node places no tablets any more: %s", error)
                except PenstockError as error:
                    self._owners.forget()
                    log.warning("tablets will be placed later: %s", error)
                # With many tablets a step takes a while; the broker beside it needs the time as well.
                await asyncio.sleep(max(LOOK_S, PAUSE_FACTOR * (self._clock.monotonic() - now)))
        finally:
            self._coordination.unlisten(self._wake)
            await self._background.cancel()

    def _wake(self, _: Sequence[KeyChange]) -> None:
        self._woken.set()

    @property
    def _may_decide(self) -> bool:
        return self._coordination.leadership is not None and self._coordination.status.is_usable

    async def _look(self, now: float) -> bool:
        """Look at all nodes; whether there is something to do at once."""
        coordination, peers = self._coordination, self._peers
        members = {member.node_id: member for member in coordination.members()}
        known = {node_id: node for node_id, node in coordination.nodes().items() if not node.is_removed}
        doubtful = [node_id for node_id in members.keys() & known.keys() if peers.is_doubtful(node_id)]
        answers = await asyncio.gather(*(peers.is_given_up(node_id) for node_id in doubtful))
        given_up = {node_id for node_id, is_given_up in zip(doubtful, answers, strict=True) if is_given_up}
        before, self._nodes = self._nodes, {}
        for node_id, node in known.items():
            self._node_health.update(
                node_id,
                now,
                is_member=node_id in members,
                is_connected=peers.is_connected(node_id),
                is_given_up=node_id in given_up,
            )
            is_leaving = node_id in members and members[node_id].is_leaving and not self._coordination.is_maintained
            self._nodes[node_id] = self._node_health.view(node_id, now, is_draining=node.is_draining or is_leaving)
        self._node_health.forget(set(known))
        self._note_lost(before, now)
        self._looked.set()
        is_due = self._nodes != before or self._woken.is_set()
        self._woken.clear()
        return is_due

    def _note_lost(self, before: Mapping[int, NodeView], now: float) -> None:
        for node_id, node in self._nodes.items():
            old = before.get(node_id)
            if old is not None and old.state is node.state:
                continue
            if node.state is not NodeState.ALIVE:
                self._hosting.forget(node_id)
            if node.state is NodeState.LOST:
                suspects = self._tablet_health.lost(node_id, now)
                log.warning("node %d is lost", node_id)
                if suspects:
                    log.warning("%d tablets were starting on node %d when it was lost: %s", len(suspects), node_id, suspects[:10])

    async def _poll(self) -> None:
        """Ask all nodes that can be reached what they host, and look at the answers."""
        try:
            await self._hosting.poll([node_id for node_id, node in self._nodes.items() if node.state is NodeState.ALIVE])
            self._observe(await self._owners.read(), self._existing(), self._clock.monotonic())
        finally:
            self._is_polling = False
            self._woken.set()

    async def _act(self, now: float) -> None:
        """Do what is due: take-overs, hand-overs, and what nodes should host and do not."""
        owners = await self._owners.read()
        listed = self._existing()
        self._kept = self._coordination.kept.nodes()
        self._tablet_health.begin_trial(now)
        decided = plan(
            list(self._nodes.values()),
            self._views(owners, listed, now),
            moves_max=max(0, MOVES_AT_ONCE - len(self._moving)),
            balance_max=0 if now - self._took_over_at < TAKEN_OVER_S else max(0, BALANCE_AT_ONCE - len(self._moving)),
            is_maintained=self._coordination.is_maintained,
        )
        self._homeless = decided.homeless
        await self._take_over(decided.takeovers, now)
        for move in decided.moves:
            self._begin(move)
        self._repair(await self._owners.read(), listed, now)
        await self._owners.free(lambda: [tablet.tablet_id for tablet in self._inventory.tablets()])
        existing = {tablet.tablet_id for tablet in listed}
        self._tablet_health.forget(self._tablet_health.watched() - existing)
        self.probe.forget(existing)
        self._hosting.forget_loads(existing)
        await self._drop_kept(existing)
        await self._leave_if_drained()

    async def _drop_kept(self, existing: set[int]) -> None:
        """Tablets that were deleted, or that another node owns since theirs was drained or lost, are kept nowhere any more."""
        owner_of, moving = (await self._owners.read()).owner_of, self._moving
        await self._coordination.kept.keep_only(
            lambda tablet_id, node_id: tablet_id in existing and (owner_of(tablet_id) == node_id or tablet_id in moving)
        )

    async def _leave_if_drained(self) -> None:
        """Let another node lead, once this one drains and has no tablets any more."""
        leader = self._coordination.leadership
        own = None if leader is None else self._nodes.get(leader.record.node_id)
        if own is None or not own.is_draining or not any(node.can_take for node in self._nodes.values()):
            return
        owned = [tablet for tablet in self.tablets() if own.node_id in (tablet.owner, tablet.target)]
        if not self._moving and all(tablet.tablet.follows_leader for tablet in owned):
            log.info("node %d drains and leaves the lead to another one", own.node_id)
            await self._coordination.resign()

    def _existing(self) -> list[CatalogTablet]:
        """The tablets that are to run."""
        return [tablet for tablet in self._inventory.tablets() if not tablet.is_deleting]

    def _observe(self, owners: OwnerMap, listed: Sequence[CatalogTablet], now: float) -> None:
        probe = self.probe
        probe.tablets.clear()
        probe.partitions.clear()
        probe.unserved = 0
        for tablet in listed:
            tablet_id = tablet.tablet_id
            owner = owners.owner_of(tablet_id)
            probe.tablets[owner] += 1
            probe.partitions[owner] += tablet.partitions
            state = self._hosting.state(owner, tablet_id)
            is_up = state is not None and state.is_up
            if owner is not None and self._hosting.has_told(owner) and not self._is_busy(tablet_id):
                self._tablet_health.observe(tablet_id, owner, now, is_up=is_up)
            if is_up:
                probe.note_up(tablet_id, now)
            elif tablet_id not in self._moving:
                probe.unserved += 1

    def _views(self, owners: OwnerMap, listed: Sequence[CatalogTablet], now: float) -> list[TabletView]:
        """All tablets for the planner, but those that `place` is busy with or that wait."""
        running = self._hosting.running()
        serving_groups = {tablet.group for tablet in listed if tablet.tablet_id in running}
        groups: dict[int, GroupNodes] = {}
        views: list[TabletView] = []
        for tablet in listed:
            if tablet.tablet_id in self._placing or self._tablet_health.is_held(tablet.tablet_id):
                continue
            group = groups.get(tablet.group)
            if group is None:
                group = groups[tablet.group] = self._inventory.group(tablet.group)
            # Where no tablet of a group runs, another node would not help.
            is_failing = tablet.group in serving_groups and self._tablet_health.is_failing(tablet.tablet_id, now)
            views.append(self._view(tablet, owners.owner_of(tablet.tablet_id), group, is_failing=is_failing))
        return views

    def _view(self, tablet: CatalogTablet, owner: int | None, group: GroupNodes, *, is_failing: bool = False) -> TabletView:
        tablet_id = tablet.tablet_id
        move = self._moving.get(tablet_id)
        leader = self._coordination.leadership
        if tablet.follows_leader and leader is not None:
            group = GroupNodes(frozenset({leader.record.node_id}), is_pinned=True)
        return TabletView(
            tablet_id,
            owner=owner if move is None else move.target,
            topic=tablet.topic,
            partitions=tablet.partitions,
            load=inf if tablet.follows_leader else self._hosting.load(tablet_id),
            disk_nodes=group.nodes,
            is_pinned=group.is_pinned,
            strikes=self._tablet_health.strikes(tablet_id),
            is_failing=is_failing,
            is_moving=move is not None,
            is_kept=owner is not None and self._kept.get(tablet_id) == owner,
            is_starting=tablet_id in self._hosting.asked,
        )

    def _is_busy(self, tablet_id: int) -> bool:
        return tablet_id in self._placing or tablet_id in self._moving or tablet_id in self._hosting.asked

    async def _take_over(self, takeovers: Sequence[Takeover], now: float) -> None:
        """Write owners, and ask them to host: some tablets after the others, the most urgent first."""
        self._took_over_at = now if takeovers else self._took_over_at
        for begin in range(0, len(takeovers), TAKEOVERS_AT_ONCE):
            by_node: dict[int, list[HostOrder]] = {}
            urgent = takeovers[begin : begin + TAKEOVERS_AT_ONCE]
            for takeover in urgent:
                if (lost := self._owners.known.owner_of(takeover.tablet_id)) is not None:
                    self.probe.note_takeover(takeover.tablet_id, now - self._peers.down_s(lost))
            await self._owners.assign({takeover.tablet_id: takeover.node_id for takeover in urgent})
            for tablet_id, node_id in urgent:
                by_node.setdefault(node_id, []).append(HostOrder(tablet_id))
                self._tablet_health.given(tablet_id, node_id, now)
            log.info("%d tablets are taken over by nodes %s", len(urgent), sorted(by_node))
            for node_id, orders in by_node.items():
                self._host_later(node_id, orders)

    def _begin(self, move: Move) -> None:
        self._moving[move.tablet_id] = move
        self._background.spawn(self._hand_over(move), f"move-tablet-{move.tablet_id}")

    async def _hand_over(self, move: Move) -> None:
        """Let a tablet stop where it runs, then let the other node have it. Each moves by itself, and serves until the other node
        can start it soon: one that waited for others would be away for longer, and clients ask less and less often."""
        try:
            async with self._hosting.arrival(move.target):
                await self._hand_over_now(move)
        finally:
            del self._moving[move.tablet_id]
            self._woken.set()

    async def _hand_over_now(self, move: Move) -> None:
        """Move a tablet to a node that is free to start it. Without an answer of both nodes it stays where it is."""
        tablet_id, began = move.tablet_id, self._clock.monotonic()
        source, target = self._nodes.get(move.source), self._nodes.get(move.target)
        if source is None or source.state is not NodeState.ALIVE or target is None or not target.can_take:
            return  # that has changed while it waited
        # The target first: where a cut is not noticed yet it could not be told to host what has been released.
        if not await self._hosting.answers(move.target) or tablet_id not in await self._hosting.release(move.source, [tablet_id]):
            log.warning("tablet %d stays on node %d: that or node %d does not answer", tablet_id, move.source, move.target)
            return
        stopped_at = self._clock.monotonic()
        self.probe.note_move(tablet_id, move.reason, stopped_at)
        try:
            await self._owners.assign({tablet_id: move.target})
        except PenstockError:
            # The store is away, perhaps for long. Where the tablet goes then is seen when it is back.
            await self._host(move.source, [HostOrder(tablet_id)])
            raise
        is_failing = move.reason is MoveReason.FAILING
        self._tablet_health.given(tablet_id, move.target, self._clock.monotonic(), is_failing=is_failing)
        await self._host(move.target, [HostOrder(tablet_id)])
        told = "tablet %d moved from node %d to node %d (%s): stopped in %.2f s, started in %.2f s"
        stopped_s, started_s = stopped_at - began, self._clock.monotonic() - stopped_at
        log.info(told, tablet_id, move.source, move.target, move.reason.value, stopped_s, started_s)

    def _repair(self, owners: OwnerMap, listed: Sequence[CatalogTablet], now: float) -> None:
        """Ask owners to host what they do not; another node that hosts it releases it before. Where the owner runs it, another
        node has not heard yet that it was fenced."""
        missing: dict[int, list[HostOrder]] = {}
        strays = self._hosting.strays(owners.owner_of)
        for tablet in sorted(listed, key=lambda tablet: (not tablet.follows_leader, -self._hosting.load(tablet.tablet_id))):
            tablet_id = tablet.tablet_id
            owner = owners.owner_of(tablet_id)
            if owner is None or self._is_busy(tablet_id) or not self._hosting.has_told(owner):
                continue
            if self._tablet_health.is_held(tablet_id):
                continue
            state = self._hosting.state(owner, tablet_id)
            if (state is None or tablet_id in strays) and self._tablet_health.may_ask(tablet_id, owner, now):
                missing.setdefault(owner, []).append(HostOrder(tablet_id))
        for node_id, orders in missing.items():
            for order in orders:
                self._hosting.asked[order.tablet_id] = node_id
            others = {order.tablet_id: strays.get(order.tablet_id, []) for order in orders}
            self._background.spawn(self._host_after_release(node_id, orders, others), f"host-at-{node_id}")

    async def _host_after_release(self, node_id: int, orders: Sequence[HostOrder], strays: Mapping[int, Sequence[int]]) -> None:
        released: dict[int, list[int]] = {}
        for tablet_id, hosts in strays.items():
            for host in hosts:
                released.setdefault(host, []).append(tablet_id)
        kept: set[int] = set()
        try:
            for host, tablet_ids in released.items():
                kept |= set(tablet_ids) - await self._hosting.release(host, tablet_ids)
            await self._host(node_id, [order for order in orders if order.tablet_id not in kept])
        finally:
            for order in orders:
                self._hosting.asked.pop(order.tablet_id, None)

    def _host_later(self, node_id: int, orders: Sequence[HostOrder]) -> None:
        for order in orders:
            self._hosting.asked[order.tablet_id] = node_id
        self._background.spawn(self._host(node_id, orders), f"host-at-{node_id}")

    async def _host(self, node_id: int, orders: Sequence[HostOrder]) -> None:
        self.probe.starts += len(orders)
        for state in await self._hosting.host(node_id, orders):
            if state.is_up:
                self.probe.note_up(state.tablet_id, self._clock.monotonic())

    @property
    def spread(self) -> int:
        """How many nodes a new topic can be spread over."""
        return max(1, sum(node.can_take for node in self._storing_nodes()))

    def _storing_nodes(self) -> list[NodeView]:
        """The nodes as far as they may store new tablets. Where each has a storage group of its own a tablet is there for good:
        then one that is away for a moment gets its share as well."""
        return [
            node
            if self._inventory.own_group(node.node_id) is None
            else replace(node, state=NodeState.ALIVE, is_member=True, is_draining=False)
            for node in self._nodes.values()
        ]

    def choose_groups(self, count: int) -> list[int]:
        """The storage groups of so many new tablets. Empty if they go to the group of all nodes."""
        new = [TabletView(number) for number in range(count)]
        owned = self._owners.known
        known = [self._view(tablet, owned.owner_of(tablet.tablet_id), GroupNodes()) for tablet in self._inventory.tablets()]
        chosen = choose(self._storing_nodes(), known, new)
        groups = [self._inventory.own_group(node_id) for node_id in chosen.values()]
        return [group for group in groups if group is not None]

    async def place(self, tablet_ids: Sequence[int]) -> None:
        """Choose the owners of new tablets, write them, and start the tablets there. UnavailableError if not all run in time."""
        self._placing.update(tablet_ids)
        try:
            async with asyncio.timeout(PLACE_S):
                await self._place(set(tablet_ids))
        except TimeoutError:
            raise UnavailableError(f"tablets did not start within {PLACE_S:g} s; they will be tried again") from None
        finally:
            self._placing.difference_update(tablet_ids)
            self._woken.set()

    async def _place(self, tablet_ids: set[int]) -> None:
        await self._looked.wait()
        owners = await self._owners.read()
        listed = self._inventory.tablets()
        known = [self._view(tablet, owners.owner_of(tablet.tablet_id), GroupNodes()) for tablet in listed]
        new = [
            self._view(tablet, None, self._inventory.group(tablet.group)) for tablet in listed if tablet.tablet_id in tablet_ids
        ]
        others = [tablet for tablet in known if tablet.tablet_id not in tablet_ids]
        chosen = choose(list(self._nodes.values()), others, new)
        while missing := tablet_ids - chosen.keys():
            if any(tablet.is_pinned for tablet in new if tablet.tablet_id in missing):
                await asyncio.sleep(LOOK_S)  # only one node can run it, which is away
                chosen = choose(list(self._nodes.values()), others, new)
                continue
            raise UnavailableError(f"no node can run {len(missing)} of the new tablets now; `penstock node list` shows the nodes")
        await self._owners.assign(chosen)
        by_node: dict[int, list[HostOrder]] = {}
        for tablet_id, node_id in chosen.items():
            by_node.setdefault(node_id, []).append(HostOrder(tablet_id, is_new=True))
        answers = await asyncio.gather(*(self._hosting.host(node_id, orders) for node_id, orders in by_node.items()))
        states: dict[int, TabletState] = {state.tablet_id: state for told in answers for state in told}
        for tablet_id, node_id in chosen.items():
            state = states.get(tablet_id)
            if state is None or not state.is_up:
                why = "it does not answer" if state is None else state.trouble or "it is starting"
                raise UnavailableError(f"tablet {tablet_id} does not run on node {node_id} yet: {why}; it will be tried again")

    async def move(self, tablet_id: int, node_id: int) -> None:
        """Hand a tablet over to a node, and wait until it runs there. UnavailableError if it does not in time."""
        try:
            async with asyncio.timeout(PLACE_S):
                while not await self.advance_move(tablet_id, node_id):  # noqa: ASYNC110 - it waits for another node
                    await asyncio.sleep(LOOK_S)
        except TimeoutError:
            raise UnavailableError(f"tablet {tablet_id} does not run on node {node_id} after {PLACE_S:g} s") from None

    async def advance_move(self, tablet_id: int, node_id: int) -> bool:
        """Begin to hand a tablet over to a node, unless that has begun; whether it runs there. It stays there until the node is
        drained or lost. InvalidRequestError if it cannot run there."""
        tablet = next((tablet for tablet in self._existing() if tablet.tablet_id == tablet_id), None)
        if tablet is None:
            raise InvalidRequestError(f"no topic has a tablet {tablet_id}; `penstock tablet list` shows them")
        owner = self._owners.known.owner_of(tablet_id)
        if trouble := move_trouble(self._view(tablet, owner, self._inventory.group(tablet.group)), self._nodes, node_id):
            raise InvalidRequestError(trouble)
        source = None if owner is None or owner == node_id else self._nodes.get(owner)
        if source is not None and source.state is NodeState.ALIVE and not self._is_busy(tablet_id):
            self._begin(Move(tablet_id, source.node_id, node_id, MoveReason.OPERATOR))
        move, state = self._moving.get(tablet_id), self._hosting.state(node_id, tablet_id)
        if owner == node_id or (move is not None and move.target == node_id):
            await self._coordination.kept.keep(tablet_id, node_id)
        return owner == node_id and state is not None and state.is_up

    @property
    def nodes(self) -> Mapping[int, NodeView]:
        """All nodes, as seen last."""
        return self._nodes

    @property
    def moving(self) -> int:
        """How many tablets are on their way."""
        return len(self._moving)

    def away_s(self, node_id: int) -> float | None:
        """How long a node has been away; None if it is not, or that is not known."""
        return self._node_health.away_s(node_id, self._clock.monotonic())

    def owned_by(self, node_id: int) -> list[int]:
        """The tablets that a node owns, or is about to get."""
        return [tablet.tablet_id for tablet in self.tablets() if node_id in (tablet.owner, tablet.target)]

    def tablets(self) -> list[PlacedTablet]:
        """Where all tablets are."""
        owners = self._owners.known
        placed: list[PlacedTablet] = []
        for tablet in self._existing():
            owner, move = owners.owner_of(tablet.tablet_id), self._moving.get(tablet.tablet_id)
            state = self._hosting.state(owner, tablet.tablet_id)
            placed.append(PlacedTablet(tablet, owner, None if move is None else move.target, state))
        return placed

    def troubles(self) -> list[str]:
        """What an operator should know: lost nodes that still own tablets, and tablets that do not run."""
        down = sorted(self._tablet_health.down(self._clock.monotonic(), DOWN_S))
        is_maintained = self._coordination.is_maintained
        return troubles_of(self._nodes, self.tablets(), self._homeless, down, is_maintained=is_maintained)
