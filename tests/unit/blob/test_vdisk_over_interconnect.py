"""A VDisk on another node: every call gives what the VDisk itself would answer, and a status when it cannot be asked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.blob import BlobId, Content, Erasure, Status, VDisk, VDiskId, Vector
from penstock.blob.bounded_link import BoundedLink
from penstock.blob.configuration import Configuration, Seat
from penstock.blob.link import CollectRequest, DiskReply, PullReply
from penstock.blob.meta import BlockItem, DiskState, HistoryItem
from penstock.blob.record import BLOCK_SIZE
from penstock.blob.remote_link import link_to_vdisk
from penstock.blob.sisters import SisterMark
from penstock.blob.vdisk_calls import (
    DISK_REPLY,
    REQUESTS,
    Method,
    pack_put_summed,
    unpack,
    unpack_parts,
    unpack_pull,
    unpack_put,
    unpack_put_all,
    unpack_put_summed,
)
from penstock.blob.vdisk_service import VDiskService, destination_of
from penstock.blob.vector import SummedBuffer
from penstock.core.errors import CorruptionError
from penstock.interconnect import CallStatus, InterconnectOptions
from penstock.testing.sim_disk import SimDisk, SimPlatter
from penstock.testing.sim_loop import current_loop, run_simulation
from tests.interconnect_world import SimNode, new_network
from tests.sim_group import GROUP_ID, SMALL, blob_at, payload

ORDER = 3
ERASURE = Erasure.BLOCK_4_2


class CountedDisk(SimDisk):
    """A disk that counts its syncs."""

    flushes = 0

    async def flush(self, name: str) -> None:
        self.flushes += 1
        await super().flush(name)


async def open_vdisk() -> VDisk:
    """A VDisk of a group that has just formed."""
    vdisk_id = VDiskId.of_order(ERASURE, GROUP_ID, 1, ORDER)
    random = current_loop().fork_random("vdisk")
    vdisk = await VDisk.open(vdisk_id, ERASURE, CountedDisk(SimPlatter(), random), random=random, options=SMALL)
    await vdisk.reach(DiskState.COMPLETE)
    vdisk.in_step = True
    return vdisk


async def remote(vdisk: VDisk, options: InterconnectOptions | None = None) -> tuple[SimNode, SimNode, BoundedLink]:
    """Two nodes, of which the second has the VDisk, and a link to it."""
    network = new_network()
    first = await SimNode(network, 1, options=options).start()
    second = await SimNode(network, 2, options=options).start()
    VDiskService(second.interconnect.service, GROUP_ID, ORDER, lambda: None if vdisk.closed else vdisk)
    return first, second, link_to_vdisk(await first.link_to(second), GROUP_ID, ORDER, timeout_s=2.0)


async def converse(link: Any) -> list[object]:
    """Everything that can be asked of a VDisk, and what it answers."""
    parts = [(blob_at(step, 4 * size).pack_part(1), payload(size, step)) for step, size in enumerate((100, 50_000, 300_000), 1)]
    told: list[object] = [await link.put(1, blob_id, body) for blob_id, body in parts]
    parts.append((blob_at(4, 1_000_000).pack_part(1), payload(250_000, 4)))
    told.append(await link.put(1, parts[-1][0], SummedBuffer(parts[-1][1], BLOCK_SIZE)))
    told.append(await link.put(1, parts[-1][0], SummedBuffer(payload(250_000, 5), BLOCK_SIZE)))  # other bytes
    vector = Vector([b"several ", b"buffers"])
    more: list[tuple[bytes, Content]] = [(blob_at(10, 60).pack_part(2), vector), (blob_at(11, 16).pack_part(2), b"four")]
    told.append(await link.put_all(1, more))
    told.append(await link.put(1, parts[0][0], b"x" * 100))  # other bytes under the same id
    told.append(await link.put(2, parts[0][0], parts[0][1]))  # another generation of the group
    told.append(await link.put_replica(1, blob_at(12, 16).pack_part(3), b"five"))
    for blob_id, body in parts:
        found = await link.get(1, blob_id, 10, len(body) - 20)
        told.append((found.status, [(part, bytes(data)) for part, data in found.parts]))
        whole = await link.get(1, blob_id[:-1] + bytes([blob_id[-1] & 0xF0]), 0, 0)
        told.append((whole.status, [(part, bytes(data)) for part, data in whole.parts]))
    told.append(await link.get(1, blob_at(99, 4).pack_part(1), 0, 1))
    channel = blob_at(1, 4).pack()[:9]
    told.append(await link.collect(1, CollectRequest(channel, 1, 1, bytes(3) + b"\x01" + bytes(3) + b"\x01", False, (), ())))
    told.append(await link.listing(1, channel, b"", None, reverse=True, limit=2))
    told.append(await link.listing(1, channel, b"", None, reverse=False, limit=1000))
    told.append(await link.channels(1))
    told.append(await link.look_up(1, channel[:8]))
    told.append(await link.block(1, BlockItem(channel[:8], 5, (1 << 64) - 1)))
    told.append(await link.block(1, BlockItem(channel[:8], 5, 7)))
    told.append(await link.block(1, BlockItem(channel[:8], 6, 7), HistoryItem(channel[:8], 2, b"history")))
    told.append(await link.put(1, blob_at(13, 16).pack_part(1), b"late"))
    told.append(await link.look_up(1, channel[:8]))
    told.append(await link.blocked_generations(1, channel[:8] + bytes(8)))
    told.append(await link.blocked_generations(2, channel[:8]))
    written = told[1]
    assert isinstance(written, DiskReply)
    told.append(await link.drop(1, parts[1][0], (9, 9)))  # not where it is
    told.append(await link.drop(1, parts[1][0], written.place))
    told.append(await link.note_disorder(1))
    told.append(await link.form(1))
    seats = tuple(Seat(node, f"disk-{node}") for node in range(8))
    told.append(await link.configure(Configuration(GROUP_ID, 1, ERASURE, seats)))
    told.append(await link.configure(Configuration(GROUP_ID, 2, ERASURE, seats)))
    told.append(await link.form(1))
    told.append(await link.pull(2, 5, 0, 0))
    told.append(await link.pull(2, 5, 0, 0, SisterMark(5, bytes(16), 2, (3, 4))))
    told.append(link.piece(1, blob_at(99, 4).pack_part(1), 0, 1))
    return told


def test_a_remote_vdisk_answers_as_a_local_one() -> None:
    async def main() -> None:
        here = await converse(await open_vdisk())
        vdisk = await open_vdisk()
        _, second, link = await remote(vdisk)
        there = await converse(link)
        assert [_plain(answer) for answer in there] == [_plain(answer) for answer in here]
        assert link.failures == 0
        assert second.interconnect.service.probe.bytes_held == 0

    run_simulation(main(), seed=1)


def _plain(answer: object) -> object:
    """An answer without the number that each opening of a VDisk draws."""
    return answer._replace(incarnation=0) if isinstance(answer, PullReply) else answer


def test_without_an_answer_every_call_is_an_error_with_a_reason() -> None:
    async def main() -> None:
        first, second, link = await remote(await open_vdisk())
        blob_id = blob_at(1, 4).pack_part(1)
        assert (await link.put(1, blob_id, b"x")).status is Status.OK
        second.process.crash()
        await asyncio.sleep(0.1)
        reply = await link.put(1, blob_id, b"x")
        assert reply.status is Status.ERROR
        assert "VDisk 3 of group 82000000 on node 2 cannot be reached" in reply.reason
        assert [reply.status for reply in await link.put_all(1, [(blob_id, b"x")] * 2)] == [Status.ERROR] * 2
        assert (await link.put_replica(1, blob_id, b"x")).status is Status.ERROR
        assert (await link.get(1, blob_id, 0, 1)).status is Status.ERROR
        assert (await link.block(1, BlockItem(bytes(8), 1, 1))).status is Status.ERROR
        assert (await link.collect(1, CollectRequest(bytes(9), 1, 1, None, False, (), ()))).status is Status.ERROR
        assert (await link.look_up(1, bytes(8))).status is Status.ERROR
        assert (await link.blocked_generations(1, bytes(8))).status is Status.ERROR
        assert (await link.listing(1, bytes(9), b"", None, reverse=False, limit=1)).status is Status.ERROR
        assert (await link.channels(1)).status is Status.ERROR
        assert (await link.pull(1, 0, 0, 0)).status is Status.ERROR
        assert (await link.drop(1, blob_id, (1, 1))).status is Status.ERROR
        assert (await link.form(1)).status is Status.ERROR
        assert (await link.configure(Configuration(GROUP_ID, 1, ERASURE, ()))).status is Status.ERROR
        assert link.failures == 14
        assert not first.process.crashed

    run_simulation(main(), seed=1)


def test_a_vdisk_that_hangs_is_an_error_after_the_deadline_and_replication_has_a_window_of_its_own() -> None:
    async def main() -> None:
        vdisk = await open_vdisk()
        _, second, link = await remote(vdisk, InterconnectOptions(window_bytes=100_000))
        disk = vdisk.disk
        assert isinstance(disk, SimDisk)
        disk.faults.slow_factor = 1e7
        began = current_loop().time()
        puts = [
            asyncio.ensure_future(link.put_replica(1, blob_at(step, 80_000).pack_part(1), bytes(20_000))) for step in (1, 2, 3, 4)
        ]
        await asyncio.sleep(0.1)
        assert (await link.put_replica(1, blob_at(5, 80_000).pack_part(1), bytes(20_000))).status is Status.ERROR
        assert current_loop().time() - began < 0.5
        foreground = asyncio.ensure_future(link.put(1, blob_at(6, 80_000).pack_part(1), bytes(20_000)))
        replies = [await put for put in (*puts, foreground)]
        assert {reply.status for reply in replies} == {Status.ERROR}
        assert all("expired" in reply.reason for reply in replies)
        assert second.interconnect.service.probe.in_flight == 5

    run_simulation(main(), seed=1)


def test_a_vdisk_that_is_closed_there_is_an_error_until_it_is_open() -> None:
    async def main() -> None:
        vdisk = await open_vdisk()
        _, _, link = await remote(vdisk)
        vdisk.closed = True
        reply = await link.put(1, blob_at(1, 4).pack_part(1), b"x")
        assert (reply.status, "is not open on this node" in reply.reason) == (Status.ERROR, True)
        vdisk.closed = False
        assert (await link.put(1, blob_at(1, 4).pack_part(1), b"x")).status is Status.OK

    run_simulation(main(), seed=1)


def test_a_request_that_makes_no_sense_is_told_so() -> None:
    async def main() -> None:
        first, _, _ = await remote(await open_vdisk())
        link = first.interconnect.links[2]
        for method in Method:
            reply = await link.call(method, destination_of(GROUP_ID, ORDER), (b"\xc1nonsense",), timeout_s=1.0)
            assert (reply.status, reply.code) == (CallStatus.FAILED, "corruption")

    run_simulation(main(), seed=1)


UNPACKERS: list[Callable[[bytes], object]] = [
    unpack_put,
    unpack_put_summed,
    unpack_put_all,
    unpack_parts,
    unpack_pull,
    lambda raw: unpack(DISK_REPLY, raw),
    *(lambda raw, decoder=decoder: unpack(decoder, raw) for decoder in REQUESTS.values()),
]


@pytest.mark.parametrize("unpacker", UNPACKERS)
@given(raw=st.binary(max_size=200))
def test_strange_bytes_are_corruption_and_nothing_else(unpacker: Callable[[bytes], object], raw: bytes) -> None:
    try:
        unpacker(raw)
    except CorruptionError:
        return


@given(size=st.sampled_from([0, 1, BLOCK_SIZE, 150_000]), at=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_a_put_with_checksums_that_was_damaged_on_its_way_is_refused(size: int, at: float, bit: int) -> None:
    blob_id = blob_at(1, size).pack_part(1)
    raw = bytearray(b"".join(pack_put_summed(1, blob_id, SummedBuffer(payload(size, 1), BLOCK_SIZE), from_reserve=False)))
    assert unpack_put_summed(raw)[:3] == (1, False, blob_id)
    raw[int(at * len(raw))] ^= 1 << bit
    with pytest.raises(CorruptionError):
        unpack_put_summed(raw)


@pytest.mark.parametrize("size", [100_000, 600_000])
def test_the_record_of_a_part_has_the_checksums_that_came_with_it(size: int) -> None:
    """So that bytes which were damaged between their sender and the disk are not believed."""

    async def main() -> None:
        vdisk = await open_vdisk()
        blob_id, body = blob_at(1, 4 * size).pack_part(1), payload(size, 1)
        table = SummedBuffer(body, BLOCK_SIZE).block_table(BLOCK_SIZE)
        damaged = bytes([body[0] ^ 1]) + body[1:]
        assert (await vdisk.put(1, blob_id, SummedBuffer(damaged, BLOCK_SIZE, table))).status is Status.OK
        assert (await vdisk.get(1, blob_id, 0, size)).status is Status.ERROR

    run_simulation(main(), seed=1)


def test_tablets_that_start_in_the_same_turn_share_a_call_and_a_sync() -> None:
    async def main() -> None:
        vdisk = await open_vdisk()
        _, second, link = await remote(vdisk)
        tablets = [number.to_bytes(8, "big") for number in range(1, 201)]
        served = second.interconnect.service.probe

        async def counted(*work: Coroutine[Any, Any, Any]) -> tuple[list[Any], int]:
            before = served.calls
            return await asyncio.gather(*work), served.calls - before

        found, calls = await counted(*(link.look_up(1, tablet) for tablet in tablets))
        assert ({(reply.status, reply.blocked_generation) for reply in found}, calls) == ({(Status.OK, -1)}, 1)
        disk = vdisk.disk
        assert isinstance(disk, CountedDisk)
        flushes = disk.flushes
        replies, calls = await counted(*(link.block(1, BlockItem(tablet, 4, 7)) for tablet in tablets))
        assert ({reply.status for reply in replies}, calls) == ({Status.OK}, 1)
        assert disk.flushes == flushes + 1
        # Each has an answer of its own: one in five is somebody else's by now.
        rivals = (link.block(1, BlockItem(tablet, 4, 7 if at % 5 else 8)) for at, tablet in enumerate(tablets))
        replies, calls = await counted(*rivals)
        assert ([reply.status for reply in replies[:6]], calls) == ([Status.ALREADY, *[Status.OK] * 4, Status.ALREADY], 1)
        parts = [(BlobId.unpack(tablet + blob_at(1, 16).pack()[8:]).pack_part(1), b"boot") for tablet in tablets]
        late, calls = await counted(*(link.put(1, blob_id, body, from_reserve=True) for blob_id, body in parts))
        assert ({reply.status for reply in late}, calls) == ({Status.BLOCKED}, 1)
        fresh = [(blob_id[:12] + b"\5" + blob_id[13:], body) for blob_id, body in parts]
        stored, calls = await counted(*(link.put(1, blob_id, body, from_reserve=True) for blob_id, body in fresh))
        assert ({reply.status for reply in stored}, calls) == ({Status.OK}, 1)
        # A part that was stored in a batch can be taken back.
        assert (await link.drop(1, fresh[7][0], stored[7].place)).status is Status.OK
        second.process.crash()
        lost, _ = await counted(*(link.block(1, BlockItem(tablet, 6, 7)) for tablet in tablets))
        assert {reply.status for reply in lost} == {Status.ERROR}
        assert "cannot be reached" in lost[-1].reason

    run_simulation(main(), seed=1)
