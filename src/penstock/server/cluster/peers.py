"""The links of this node to all others, kept up to date as they come, go and move; and which of them cannot be reached."""

from __future__ import annotations

import asyncio
from enum import IntEnum
from typing import Final

from penstock.coordination import Coordination, MemberRecord
from penstock.core.clock import Clock
from penstock.core.errors import ConfigError
from penstock.interconnect import CallStatus, Interconnect, Link, Parts, ServedCall

ADDRESS: Final = "interconnect"  # in the addresses of a member
NODE_DESTINATION: Final = 1  # calls to the node itself; those to VDisks have far higher numbers
ASK_S: Final = 0.5
ACCEPT_S: Final = 2.0  # how long a node that starts waits for the others
LOOK_S: Final = 0.02
SILENT_S: Final = 0.3  # a node that is not reached for so long may be given up


class NodeMethod(IntEnum):
    """Calls to a node."""

    REACHES = 1  # whether it is connected to the node with this id


class Peers:
    """Links by node id."""

    def __init__(self, node_id: int, coordination: Coordination, interconnect: Interconnect, clock: Clock) -> None:
        self._node_id = node_id
        self._coordination = coordination
        self._interconnect = interconnect
        self._clock = clock
        self._down_since: dict[int, float] = {}  # of links that are not connected
        interconnect.service.register(NODE_DESTINATION, {NodeMethod.REACHES: self._serve_reaches})

    def follow(self) -> None:
        """Connect to every node that runs, wherever it is now."""
        for member in self._coordination.members():
            if member.node_id != self._node_id:
                self.link(member.node_id)

    async def check_accepted(self) -> None:
        """ConfigError if no running node wants this one, or it wants none of them. One that does not answer says nothing."""
        self.follow()
        links = list(self._interconnect.links.values())
        deadline = self._clock.monotonic() + ACCEPT_S
        while any(not link.is_connected and not link.is_refused for link in links):
            if self._clock.monotonic() > deadline:
                break
            await asyncio.sleep(LOOK_S)
        refused = [link.why_down for link in links if link.is_refused]
        if refused and not any(link.is_connected for link in links):
            raise ConfigError(f"this node cannot join: {'; '.join(refused)}")

    def link(self, node_id: int) -> Link:
        """The link to a node; one that does not run has no address yet."""
        known = self._interconnect.links.get(node_id)
        address = self._address(node_id) or (known.address if known is not None else "")
        link = self._interconnect.link(node_id, address)
        if known is None:
            self._down_since[node_id] = self._clock.monotonic()
            link.watch(lambda is_up: self._changed(node_id, is_up))
        return link

    def is_connected(self, node_id: int) -> bool:
        """Whether this node reaches another one, or is it."""
        link = self._interconnect.links.get(node_id)
        return node_id == self._node_id or (link is not None and link.is_connected)

    def down_s(self, node_id: int) -> float:
        """How long a node has not been reached, in seconds; 0 if it is connected."""
        since = self._down_since.get(node_id)
        return 0.0 if since is None else self._clock.monotonic() - since

    def is_doubtful(self, node_id: int) -> bool:
        """Whether a node is not reached, and not only for a moment: nothing listens at its address, or it is silent for long."""
        link = self._interconnect.links.get(node_id)
        is_gone = link is not None and link.is_gone
        return not self.is_connected(node_id) and (is_gone or self.down_s(node_id) >= SILENT_S)

    @property
    def is_alone(self) -> bool:
        """Whether other nodes run and none of them can be reached."""
        others = [member.node_id for member in self._coordination.members() if member.node_id != self._node_id]
        links = [link for number in others if (link := self._interconnect.links.get(number)) is not None]
        return bool(others) and not any(link.is_connected for link in links)

    def troubles(self) -> list[str]:
        """Why running nodes cannot be reached."""
        return [
            link.why_down
            for member in self._coordination.members()
            if (link := self._interconnect.links.get(member.node_id)) is not None and not link.is_connected
        ]

    async def is_given_up(self, node_id: int) -> bool:
        """Whether a node counts as lost: this one does not reach it, nor do at least half of the others, and those that this one
        reaches are with it a majority of the members."""
        members = self._coordination.members()
        others = [member for member in members if member.node_id not in (self._node_id, node_id)]
        answers = await asyncio.gather(*(self._ask_reaches(member, node_id) for member in others))
        reached = [answer for answer in answers if answer is not None]
        agreeing = sum(not answer for answer in reached)
        return 2 * agreeing >= len(others) and 2 * (1 + len(reached)) > len(members)

    async def _ask_reaches(self, member: MemberRecord, node_id: int) -> bool | None:
        link = self.link(member.node_id)
        reply = await link.call(NodeMethod.REACHES, NODE_DESTINATION, (node_id.to_bytes(4, "big"),), timeout_s=ASK_S)
        return bytes(reply.body) == b"\1" if reply.status is CallStatus.OK else None

    def _serve_reaches(self, call: ServedCall) -> Parts:
        asked = int.from_bytes(bytes(call.body or b""), "big")
        link = self._interconnect.links.get(asked)
        return (b"\1" if link is not None and link.is_connected else b"\0",)

    def _changed(self, node_id: int, is_up: bool) -> None:
        if is_up:
            self._down_since.pop(node_id, None)
        else:
            self._down_since.setdefault(node_id, self._clock.monotonic())

    def _address(self, node_id: int) -> str:
        members = (member for member in self._coordination.members() if member.node_id == node_id)
        return next((member.addresses.get(ADDRESS, "") for member in members), "")
