"""A classic group of raw members, for the time that a broker takes to rebalance it.

Members learn of a rebalance by their next heartbeats. librdkafka looks at its group about twice a second, whatever
`heartbeat.interval.ms` says, so a group of its consumers takes up to half a second, of which a broker has some ten milliseconds.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from statistics import mean, median
from typing import TypeVar

import uvloop

from bench.kafka_frames import CLIENT_ID
from bench.kafka_peer.window import Window
from penstock.kafka.protocol import Message, decode_response, encode_request, errors, keys
from penstock.kafka.protocol.cluster import FindCoordinatorRequest, FindCoordinatorResponse
from penstock.kafka.protocol.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

HEARTBEAT_S = 0.02
LEAVERS = 10
REST_S = 0.3
SETTLE_S_MAX = 60.0
VERSIONS = {keys.FIND_COORDINATOR: 3, keys.JOIN_GROUP: 7, keys.SYNC_GROUP: 5, keys.HEARTBEAT: 4, keys.LEAVE_GROUP: 4}
NOT_YET = (errors.COORDINATOR_LOAD_IN_PROGRESS, errors.COORDINATOR_NOT_AVAILABLE, errors.NOT_COORDINATOR)
M = TypeVar("M", bound=Message)


class Member:
    """A member of a group on a connection of its own."""

    def __init__(self, group: str, on_settled: Callable[[], None]) -> None:
        self._group = group
        self._on_settled = on_settled
        self._id = ""
        self.generation = -1

    async def connect(self, address: str) -> None:
        """Connect, and have the broker prepare to coordinate the group."""
        host, port = address.split(":")
        self._reader, self._writer = await asyncio.open_connection(host, int(port))
        find = FindCoordinatorRequest(key=self._group)
        # The answer is not looked at: there is one broker, and a join waits for what it prepares.
        await self._call(keys.FIND_COORDINATOR, find, FindCoordinatorResponse)

    async def run(self) -> None:
        """Join, and join again whenever the group rebalances; until cancelled."""
        while True:
            await self._join()
            request = HeartbeatRequest(group_id=self._group, generation_id=self.generation, member_id=self._id)
            code = errors.NONE
            while code == errors.NONE:
                await asyncio.sleep(HEARTBEAT_S)
                code = (await self._call(keys.HEARTBEAT, request, HeartbeatResponse)).error_code
            if code != errors.REBALANCE_IN_PROGRESS:
                raise RuntimeError(f"a heartbeat was refused with error {code}")

    async def leave(self) -> None:
        """Leave the group and disconnect."""
        request = LeaveGroupRequest(group_id=self._group, members=[MemberIdentity(member_id=self._id)])
        await self._call(keys.LEAVE_GROUP, request, LeaveGroupResponse)
        self._writer.close()

    async def _join(self) -> None:
        while True:
            protocols = [JoinGroupRequestProtocol(name="any", metadata=b"")]
            request = JoinGroupRequest(group_id=self._group, session_timeout_ms=10_000, rebalance_timeout_ms=60_000)
            request.member_id, request.protocol_type, request.protocols = self._id, "bench", protocols
            joined = await self._call(keys.JOIN_GROUP, request, JoinGroupResponse)
            if joined.error_code == errors.MEMBER_ID_REQUIRED:
                self._id = joined.member_id
            elif joined.error_code in NOT_YET:
                await asyncio.sleep(0.05)
            elif joined.error_code != errors.NONE:
                raise RuntimeError(f"a join was refused with error {joined.error_code}")
            elif await self._sync(joined):
                return

    async def _sync(self, joined: JoinGroupResponse) -> bool:
        request = SyncGroupRequest(group_id=self._group, generation_id=joined.generation_id, member_id=self._id)
        request.protocol_type, request.protocol_name = "bench", "any"
        # Only the leader is told of the members.
        request.assignments = [SyncGroupRequestAssignment(member_id=one.member_id, assignment=b"some") for one in joined.members]
        synced = await self._call(keys.SYNC_GROUP, request, SyncGroupResponse)
        if synced.error_code == errors.REBALANCE_IN_PROGRESS:
            return False
        if synced.error_code != errors.NONE or synced.assignment != b"some":
            raise RuntimeError(f"a sync was answered by error {synced.error_code} and {synced.assignment!r}")
        self.generation = joined.generation_id
        self._on_settled()
        return True

    async def _call(self, key: int, request: Message, kind: type[M]) -> M:
        self._writer.write(b"".join(encode_request(key, VERSIONS[key], 0, CLIENT_ID, request)[0]))
        frame = await self._reader.readexactly(int.from_bytes(await self._reader.readexactly(4), "big"))
        _, response = decode_response(key, VERSIONS[key], frame)
        assert isinstance(response, kind)
        return response


def rebalance(address: str, *, members: int, broker_pid: int) -> dict[str, float]:
    """A group in balance loses a member, several times; the usual seconds until all others have their new assignments."""
    return uvloop.run(_rebalance(address, members, broker_pid))


async def _rebalance(address: str, members: int, broker_pid: int) -> dict[str, float]:
    changed = asyncio.Event()
    everyone = [Member(f"rebalance-{os.getpid()}", changed.set) for _ in range(members)]
    for member in everyone:
        await member.connect(address)
    running = [asyncio.create_task(member.run()) for member in everyone]
    await _settled(everyone, running, changed, 0)
    seconds: list[float] = []
    broker_us: list[float] = []
    for _ in range(LEAVERS):
        await asyncio.sleep(REST_S)
        leaver, heartbeats = everyone.pop(), running.pop()
        heartbeats.cancel()
        await asyncio.wait([heartbeats])
        await leaver.connect(address)  # its heartbeat may have been cancelled halfway through a reply
        generation = everyone[0].generation
        window = Window(broker_pid)
        started = time.perf_counter()
        await leaver.leave()
        await _settled(everyone, running, changed, generation + 1)
        seconds.append(time.perf_counter() - started)
        broker_us.append(window.close(1)["broker_us"])
    for task in running:
        task.cancel()
    return {"s": median(seconds), "broker_ms": mean(broker_us) / 1000}


async def _settled(
    everyone: list[Member], running: list[asyncio.Task[None]], changed: asyncio.Event, generation_min: int
) -> None:
    """Wait until all members are in one generation, and not one before."""
    async with asyncio.timeout(SETTLE_S_MAX):
        while len({member.generation for member in everyone}) > 1 or everyone[0].generation < generation_min:
            for task in running:
                if task.done():
                    task.result()
            changed.clear()
            await changed.wait()
