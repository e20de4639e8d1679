"""What the leader decides about storage groups: the first one, further ones, and where a VDisk lives. Each decision is one write
by compare-and-swap, and VDisks follow it; one VDisk of a group is moved at a time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

import msgspec

from penstock.blob import (
    DYNAMIC_GROUPS_FROM,
    Configuration,
    Erasure,
    Membership,
    PlacedDisk,
    Seat,
    Status,
    choose_disks,
    choose_spare,
    group_quorum,
)
from penstock.coordination import Coordination, Entry, MemberRecord, NotLeaderError, OperatorRequest, Outcome, decode_request
from penstock.core.clock import Clock
from penstock.core.errors import ConfigError, InvalidRequestError, PenstockError, UnavailableError
from penstock.core.periodic import repeat
from penstock.server.cluster.groups import ClusterGroups, group_ids

log = logging.getLogger(__name__)

FORM_ALL_S: Final = 10.0
"""How long a new group waits for all of its VDisks; then a quorum of them is enough, and the others learn from these."""
GROUPS_PER_RECOVERY: Final = 1 << 12
REPLACE_DISK: Final = "replace-disk"
DRAIN_DISK: Final = "drain-disk"
AWAIT_DISK_DRAINED: Final = "await-disk-drained"
UNDRAIN_DISK: Final = "undrain-disk"
MAKE_GROUP: Final = "make-group"
REMOVE_NODE: Final = "remove-node"


class GroupController:
    """Decides while this node leads. `step` is called now and then, and does what is due."""

    def __init__(self, coordination: Coordination, groups: ClusterGroups, clock: Clock) -> None:
        self._coordination = coordination
        self._groups = groups
        self._clock = clock
        self.answers: dict[str, Callable[[Mapping[str, str]], Awaitable[str]]] = {}  # further requests, by their kind
        self._waiting_for = ""  # what the first group still needs
        self._forming_since: dict[int, float] = {}

    async def step(self) -> None:
        """Make the first group, let new groups serve, write what VDisks know better, and answer requests."""
        if not any(Configuration.unpack(entry.value).group >= DYNAMIC_GROUPS_FROM for entry in self._entries()):
            await self._make_first()
        for group, membership in list(self._groups.memberships.items()):
            await self._catch_up(group, membership)
            if not membership.configuration.is_formed:
                await self._form(membership)
        for left in self._draining():
            await self._leave_if_possible(left)
        for entry in self._coordination.requests().values():
            request = decode_request(entry)
            if not request.is_done:
                await self._answer(entry, request)

    @property
    def waiting_for(self) -> str:
        """What the first group still needs; empty if it is there."""
        return self._waiting_for

    async def _make_first(self) -> None:
        identity = self._coordination.identity
        members = self._coordination.members()
        if len(members) < identity.nodes_expected:
            self._say_waiting(f"{identity.nodes_expected} nodes are expected, {len(members)} run")
            return
        try:
            await self._make(Erasure(identity.kind))
        except ConfigError as error:
            self._say_waiting(str(error))
        else:
            self._waiting_for = ""

    def _say_waiting(self, reason: str) -> None:
        if reason != self._waiting_for:
            self._waiting_for = reason
            log.info("the first storage group waits for more nodes: %s", reason)

    async def _make(self, erasure: Erasure) -> Configuration:
        """A new group, in which the VDisks do not serve yet."""
        placed, seats = self._placed()
        chosen = choose_disks(erasure, placed)
        # A store that was rebuilt may not know all groups yet: those made before have other numbers.
        first = DYNAMIC_GROUPS_FROM + self._coordination.identity.recoveries * GROUPS_PER_RECOVERY
        group = max([first - 1, *group_ids(self._coordination)]) + 1
        configuration = Configuration(group, 1, erasure, tuple(seats[disk] for disk in chosen), is_formed=False)
        await self._write(configuration, 0)
        log.info("group %08x is made: %s on %s", group, erasure.value, _shown(configuration.seats))
        return configuration

    async def _form(self, membership: Membership) -> None:
        """Let the empty VDisks of a new group begin, and then decide that it serves."""
        configuration = membership.configuration
        since = self._forming_since.setdefault(configuration.group, self._clock.monotonic())
        links = {order: link for order, link in enumerate(membership.group.links) if link is not None}
        replies = await asyncio.gather(*(link.form(configuration.generation) for link in links.values()))
        begun = [order for order, reply in zip(links, replies, strict=True) if reply.status is Status.OK]
        is_late = self._clock.monotonic() - since >= FORM_ALL_S
        if len(begun) < len(configuration.seats) and not is_late:
            return
        if not group_quorum(configuration.erasure, sum(1 << order for order in begun)):
            return
        await self._decide(membership, configuration.formed())
        del self._forming_since[configuration.group]

    async def _catch_up(self, group: int, membership: Membership) -> None:
        """The highest configuration that disks have wins over what is stored."""
        entry = next((entry for entry in self._entries() if Configuration.unpack(entry.value).group == group), None)
        known = membership.configuration
        if entry is not None and Configuration.unpack(entry.value).generation < known.generation:
            log.warning("disks of group %08x are in configuration %d, newer than what is stored", group, known.generation)
            await self._write(known, entry.revision)

    async def _decide(self, membership: Membership, configuration: Configuration) -> None:
        """Write the next configuration of a group, then tell its VDisks of it."""
        entry = await self._coordination.read_group(configuration.group)
        if entry is None or Configuration.unpack(entry.value) != membership.configuration:
            raise UnavailableError(f"group {configuration.group:08x} has changed meanwhile; try again")
        await self._write(configuration, entry.revision)
        membership.learn(configuration)
        await membership.refresh()

    async def _write(self, configuration: Configuration, revision: int) -> None:
        result = await self._coordination.change_group(configuration.group, configuration.pack(), revision)
        if result.outcome is not Outcome.DONE:
            raise UnavailableError(f"the configuration of group {configuration.group:08x} is {result.outcome.value}; try again")

    # Requests of operators.

    async def _answer(self, entry: Entry, request: OperatorRequest) -> None:
        try:
            answer = await self._carry_out(request)
        except NotLeaderError:
            raise
        except UnavailableError as error:
            # It is tried again at the next step; meanwhile the operator sees what it waits for.
            answered = msgspec.structs.replace(request, answer=str(error))
            if answered == request:
                return
        except KeyError as error:
            answered = msgspec.structs.replace(request, is_done=True, is_failed=True, answer=f"{request.kind} lacks {error}")
        except (ConfigError, InvalidRequestError, ValueError) as error:
            answered = msgspec.structs.replace(request, is_done=True, is_failed=True, answer=str(error))
        else:
            answered = msgspec.structs.replace(request, is_done=True, answer=answer)
        await self._coordination.answer_request(entry, answered)

    async def _carry_out(self, request: OperatorRequest) -> str:
        if request.kind == MAKE_GROUP:
            erasure = Erasure(request.arguments["erasure"]) if "erasure" in request.arguments else None
            configuration = await self._make(erasure or Erasure(self._coordination.identity.kind))
            return f"group {configuration.group:08x} is made on {_shown(configuration.seats)}"
        if request.kind == REPLACE_DISK:
            return await self._replace_disk(request)
        if request.kind == DRAIN_DISK:
            return await self._drain_disk(_seat(request))
        if request.kind == AWAIT_DISK_DRAINED:
            return await self._await_drained(_seat(request))
        if request.kind == UNDRAIN_DISK:
            return await self._undrain_disk(_seat(request))
        if request.kind == REMOVE_NODE:
            return await self._remove_node(int(request.arguments["node"]))
        if request.kind in self.answers:
            return await self.answers[request.kind](request.arguments)
        raise InvalidRequestError(f"the leader does not know the request {request.kind!r}; upgrade Penstock on all nodes")

    async def _replace_disk(self, request: OperatorRequest) -> str:
        """Move every VDisk that lives on a disk to another one."""
        left = _seat(request)
        moved = await self._leave(left, request.arguments.get("to"))
        if not moved:
            raise InvalidRequestError(f"{_shown([left])} has no VDisk; `penstock node list` shows the disks of all nodes")
        return f"{_shown([left])} is left: {', '.join(moved)}"

    async def _drain_disk(self, left: Seat) -> str:
        """Store that a disk drains. Each step moves what is on it, also that of the next leader."""
        self._check_known(left)
        for membership in self._groups.memberships.values():
            if left in membership.configuration.seats and membership.configuration.erasure is Erasure.NONE:
                raise ConfigError(
                    f"group {membership.group.id:08x} on {_shown([left])} has no second copy to refill another disk from; "
                    "copy its topics to a new group first"
                )
        await self._coordination.set_draining(left.node, is_draining=True, disk=left.disk)
        return f"{_shown([left])} drains: its VDisks move to other disks, and it gets no more"

    async def _await_drained(self, left: Seat) -> str:
        if left not in self._draining():
            raise InvalidRequestError(f"{_shown([left])} does not drain any more")
        await self._leave(left)
        return f"{_shown([left])} is drained: it has no VDisk, and gets none until it is undrained"

    async def _undrain_disk(self, left: Seat) -> str:
        self._check_known(left)
        await self._coordination.set_draining(left.node, is_draining=False, disk=left.disk)
        return f"{_shown([left])} can get VDisks again"

    def _check_known(self, disk: Seat) -> None:
        """InvalidRequestError unless a running node has this disk, or a group uses it."""
        running = {member.node_id: member.disks for member in self._coordination.members()}
        used = any(disk in membership.configuration.seats for membership in self._groups.memberships.values())
        if not used and disk.disk not in running.get(disk.node, {}):
            raise InvalidRequestError(f"there is no {_shown([disk])}; `penstock node list` shows the disks of all nodes")

    def _draining(self) -> list[Seat]:
        nodes = sorted(self._coordination.nodes().items())
        return [Seat(node_id, disk) for node_id, node in nodes if not node.is_removed for disk in sorted(node.draining_disks)]

    async def _leave_if_possible(self, left: Seat) -> None:
        """Move what can be moved from a disk that drains; the rest waits for the next step."""
        try:
            await self._leave(left)
        except (ConfigError, UnavailableError) as error:
            log.debug("%s is not drained yet: %s", _shown([left]), error)

    async def _leave(self, left: Seat, to: str | None = None) -> list[str]:
        """Move every VDisk away from a disk, those of one group one after another. Returns what was moved where."""
        moved: list[str] = []
        for membership in self._groups.memberships.values():
            if left in membership.configuration.seats:
                seat = await self._move(membership, membership.configuration.seats.index(left), to)
                moved.append(f"group {membership.group.id:08x} to {_shown([seat])}")
        return moved

    async def _remove_node(self, node_id: int) -> str:
        """Remove a node that does not run and has no VDisk."""
        for entry in self._entries():
            configuration = Configuration.unpack(entry.value)
            if any(seat.node == node_id for seat in configuration.seats):
                raise ConfigError(f"node {node_id} has a VDisk of group {configuration.group:08x}; replace its disks first")
        if any(member.node_id == node_id for member in self._coordination.members()):
            raise ConfigError(f"node {node_id} runs; stop it first")
        result = await self._coordination.remove_node(node_id)
        if result.outcome is not Outcome.DONE:
            raise UnavailableError(f"removing node {node_id} is {result.outcome.value}")
        return f"node {node_id} is removed; its id is not given again"

    async def _move(self, membership: Membership, order: int, to: str | None) -> Seat:
        configuration = membership.configuration
        if trouble := await membership.trouble_with_moving(order):
            raise UnavailableError(f"group {configuration.group:08x} waits: {trouble}")
        placed, seats = self._placed()
        numbers = {seat: number for number, seat in seats.items()}
        # A disk of a node that does not run is a member all the same, without a place.
        members = [numbers.get(seat, -1) for seat in configuration.seats]
        if to is not None:
            node, _, disk = to.partition(":")
            wanted = numbers.get(Seat(int(node), disk))
            if wanted is None:
                raise InvalidRequestError(f"{to} is no disk of a running node; `penstock node list` shows them, as NODE:DISK")
            placed = [disk for disk in placed if disk.id == wanted or disk.id in members]
        seat = seats[choose_spare(configuration.erasure, placed, members, order)]
        await self._decide(membership, configuration.moved(order, seat))
        log.info("VDisk %d of group %08x moves to %s", order, configuration.group, _shown([seat]))
        return seat

    # What there is.

    def _placed(self) -> tuple[list[PlacedDisk], dict[int, Seat]]:
        """Every disk that works, and the seat that its number stands for. Those that drain get no VDisk."""
        loads: dict[Seat, int] = {}
        for entry in self._entries():
            for seat in Configuration.unpack(entry.value).seats:
                loads[seat] = loads.get(seat, 0) + 1
        draining = set(self._draining())
        placed: list[PlacedDisk] = []
        seats: dict[int, Seat] = {}
        for member in sorted(self._coordination.members(), key=lambda member: member.node_id):
            for name in sorted(member.disks):
                if member.disks[name]:
                    continue  # it says why it cannot be used
                seat = Seat(member.node_id, name)
                number = len(seats)
                seats[number] = seat
                is_draining = seat in draining
                placed.append(PlacedDisk(number, member.datacenter, _domain(member), loads.get(seat, 0), suspect=is_draining))
        return placed, seats

    def _entries(self) -> list[Entry]:
        return list(self._coordination.groups().values())


def _domain(member: MemberRecord) -> str:
    """What fails together with a node: its rack, or else the node alone."""
    return member.rack or f"node {member.node_id}"


async def lead(controller: GroupController, coordination: Coordination, interval_s: float) -> None:
    """Decide for as long as this node runs, whenever it leads."""

    async def decide() -> None:
        if coordination.leadership is None or not coordination.status.is_usable:
            return
        try:
            await controller.step()
        except NotLeaderError as error:
            log.info("this node decides nothing any more: %s", error)
        except PenstockError as error:
            log.warning("a decision about storage groups will be tried again: %s", error)

    await repeat("the controller of storage groups", interval_s, decide)


def _seat(request: OperatorRequest) -> Seat:
    return Seat(int(request.arguments["node"]), request.arguments["disk"])


def _shown(seats: Sequence[Seat]) -> str:
    return ", ".join(f"node {seat.node} {seat.disk}" for seat in seats)
