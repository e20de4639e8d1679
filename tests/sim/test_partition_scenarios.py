"""What the partition simulation found once, each as the shortest story that shows it."""

from __future__ import annotations

import asyncio

import pytest

from penstock.blob import Reply, Status
from penstock.core.errors import ClosedError, FencedError, PenstockError
from penstock.queue import BlobCache, Partition, PartitionConfig, SourceWrite, WriteResult
from penstock.tablet import Request, Write
from penstock.testing.batches import make_batch
from tests.sim_tablet import LOG, PAGES, Fate, SimNode, content, history, on_node, turns

SMALL_BODIES = PartitionConfig(low_watermark=3000)


async def _write(partition: Partition, value: bytes, seqno: int) -> WriteResult:
    return await partition.write(make_batch([value]), SourceWrite(b"source", seqno))


@pytest.mark.parametrize("given_up", [0, 1, 2])
@pytest.mark.parametrize("cycle_bytes_max", [1, 10_000])
def test_a_write_that_its_writer_gave_up_is_not_overtaken_by_the_next_of_its_source(
    given_up: int, cycle_bytes_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Left out, it could never be written again: its seqno would be taken for that of a duplicate."""

    monkeypatch.setattr("penstock.queue.partition_writer.ENTRY_BYTES_MAX", cycle_bytes_max)

    async def scenario(node: SimNode) -> None:
        partition = await (await node.queue(1)).add_partition(0)
        held = asyncio.Event()
        node.hooked.on(LOG, Fate(gate=held))
        asked = [asyncio.create_task(_write(partition, b"%d" % seqno, seqno)) for seqno in range(3)]
        await turns()
        asked[given_up].cancel()
        held.set()
        await asyncio.gather(*asked, return_exceptions=True)
        again = await _write(partition, b"%d" % given_up, given_up)
        assert again == WriteResult(given_up, duplicate=True)
        assert await history(partition) == [(0, b"0"), (1, b"1"), (2, b"2")]

    on_node(scenario)


def test_a_reader_of_an_old_generation_is_told_that_it_is_fenced_and_not_that_data_is_lost() -> None:
    async def scenario(node: SimNode) -> None:
        node.cache = BlobCache(0)
        old = await node.queue(1, SMALL_BODIES)
        partition = await old.add_partition(0)
        await _write(partition, content(4000), 0)
        new = await node.queue(2, SMALL_BODIES)
        await new.partition(0).trim(1)
        await new.tablet.collect_garbage()
        with pytest.raises(FencedError):
            await partition.read(0, 10_000)
        assert old.stopped.is_set()

    on_node(scenario)


def test_a_snapshot_of_a_tablet_that_is_fenced_meanwhile_ends() -> None:
    async def scenario(node: SimNode) -> None:
        old = await node.kv(1)
        await old.execute(Request((Write(b"a", b"1"),)))
        held = asyncio.Event()
        node.hooked.on(PAGES, Fate(gate=held, carried_out=False, reply=Reply(Status.OK)))
        snapshot = asyncio.create_task(old.take_snapshot())
        await turns()
        await node.kv(2)
        with pytest.raises(FencedError):
            await old.execute(Request((Write(b"a", b"2"),)))
        held.set()
        async with asyncio.timeout(60):
            with pytest.raises(FencedError):
                await snapshot

    on_node(scenario)


def test_a_source_that_was_forgotten_with_all_its_data_writes_the_same_numbers_anew_and_each_once() -> None:
    """What was given up before is sent again first; then what was acknowledged and trimmed is no duplicate either."""

    async def scenario(node: SimNode) -> None:
        partition = await (await node.queue(1)).add_partition(0)
        await _write(partition, b"8", 8)
        await _write(partition, b"13", 13)
        assert await _write(partition, b"0", 0) == WriteResult(-1, duplicate=True)
        await partition.trim(2)
        await partition.retain()
        assert await _write(partition, b"0", 0) == WriteResult(2, duplicate=False)
        assert await _write(partition, b"8", 8) == WriteResult(3, duplicate=False)
        assert await _write(partition, b"8", 8) == WriteResult(3, duplicate=True)
        for generation in (2, 3):
            partition = (await node.queue(generation)).partition(0)
            assert await _write(partition, b"0", 0) == WriteResult(2, duplicate=True)
            assert await history(partition) == [(2, b"0"), (3, b"8")]

    on_node(scenario)


@pytest.mark.parametrize("broken", ["apply", "source"])
def test_a_partition_that_breaks_down_in_the_midst_of_a_write_writes_nothing_more_and_starts_anew_whole(
    broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The write may be durable while memory says otherwise: another would be given the same offset."""

    def break_down(*_: object) -> None:
        raise ZeroDivisionError("a bug that the test has made")

    async def scenario(node: SimNode) -> None:
        queue = await node.queue(1)
        partition = await queue.add_partition(0)
        await _write(partition, b"0", 0)
        with monkeypatch.context() as patch:
            patch.setattr(Partition, broken, break_down)
            sent = [asyncio.create_task(_write(partition, b"%d" % seqno, seqno)) for seqno in (1, 2)]
            with pytest.raises(ClosedError, match="a bug that the test has made"):
                await sent[0]
        with pytest.raises(PenstockError):
            await sent[1]
        assert queue.stopped.is_set()
        with pytest.raises(ClosedError, match="must be restarted"):
            await _write(partition, b"3", 3)
        partition = (await node.queue(2)).partition(0)
        for seqno in (1, 2, 3):
            await _write(partition, b"%d" % seqno, seqno)
        assert await history(partition) == [(seqno, b"%d" % seqno) for seqno in range(4)]

    on_node(scenario)


@pytest.mark.parametrize("change", ["trim", "roll_head"])
def test_a_change_whose_asker_went_away_before_its_answer_leaves_no_partition_that_is_wrong_about_itself(change: str) -> None:
    """It is stored, but its caller is gone: the next write would refer to pieces that were deleted."""

    async def scenario(node: SimNode) -> None:
        queue = await node.queue(1)
        partition = await queue.add_partition(0)
        await _write(partition, content(3000), 0)
        held = asyncio.Event()
        node.hooked.on(LOG, Fate(gate=held))
        asked = asyncio.create_task(partition.trim(1) if change == "trim" else partition.roll_head())
        await turns()
        asked.cancel()
        await turns()
        held.set()
        await turns()
        node.hooked.on(LOG, Fate())
        if change == "trim":
            with pytest.raises(ClosedError, match="must be restarted"):
                await _write(partition, b"1", 1)
        else:  # the writer rolls the head, with or without a caller
            await _write(partition, b"1", 1)
            assert partition.bodies
        partition = (await node.queue(2)).partition(0)
        await _write(partition, b"1", 1)
        expected = [(0, content(3000)), (1, b"1")]
        assert await history(partition) == (expected[1:] if change == "trim" else expected)

    on_node(scenario)
