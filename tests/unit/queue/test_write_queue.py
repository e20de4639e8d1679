"""How much may wait to be written to a partition, and what becomes of a write that is too much."""

from __future__ import annotations

import asyncio

import pytest

from penstock.gateway.kafka.error_codes import code_of
from penstock.kafka.protocol import errors
from penstock.queue import Partition, PartitionConfig, SourceWrite, WriteQueueFullError, WriteResult
from penstock.testing.batches import make_batch
from tests.sim_tablet import ERROR, LOG, Fate, SimNode, content, history, on_node, turns

LIMIT = 10_000
CONFIG = PartitionConfig(waiting_bytes_max=LIMIT)


def _write(partition: Partition, size: int, seqno: int) -> asyncio.Task[WriteResult]:
    return asyncio.create_task(partition.write(make_batch([content(size, seqno)]), SourceWrite(b"source", seqno)))


async def _blocked_writes(node: SimNode, partition: Partition) -> tuple[asyncio.Event, list[asyncio.Task[WriteResult]]]:
    """A disk that does not answer, with as many writes of 3,000 bytes waiting for it as may."""
    held = asyncio.Event()
    node.hooked.on(LOG, Fate(gate=held))
    waiting = [_write(partition, 3000, seqno) for seqno in range(3)]
    await turns()
    return held, waiting


@pytest.mark.parametrize("cycle_bytes_max", [1, 16 << 20])
def test_no_more_bytes_wait_than_may_and_those_that_do_are_written(cycle_bytes_max: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.queue.partition_writer.ENTRY_BYTES_MAX", cycle_bytes_max)

    async def scenario(node: SimNode) -> None:
        partition = await (await node.queue(1, CONFIG)).add_partition(0)
        held, waiting = await _blocked_writes(node, partition)
        with pytest.raises(WriteQueueFullError, match="send this again") as refused:
            await _write(partition, 3000, 3)
        assert refused.value.retriable
        assert code_of(refused.value) == errors.NOT_ENOUGH_REPLICAS
        held.set()
        assert [result.base_offset for result in await asyncio.gather(*waiting)] == [0, 1, 2]
        assert await _write(partition, 3000, 3) == WriteResult(3, duplicate=False)
        assert await history(partition) == [(seqno, content(3000, seqno)) for seqno in range(4)]

    on_node(scenario)


def test_a_smaller_write_does_not_overtake_one_that_was_refused() -> None:
    """Else the source's first one, sent again, would be taken for a duplicate and never be written."""

    async def scenario(node: SimNode) -> None:
        partition = await (await node.queue(1, CONFIG)).add_partition(0)
        held, waiting = await _blocked_writes(node, partition)
        sent = [_write(partition, size, seqno) for size, seqno in ((3000, 3), (10, 4))]
        for task in sent:
            with pytest.raises(WriteQueueFullError):
                await task
        held.set()
        await asyncio.gather(*waiting)
        sent = [_write(partition, size, seqno) for size, seqno in ((3000, 3), (10, 4))]
        assert [result.base_offset for result in await asyncio.gather(*sent)] == [3, 4]

    on_node(scenario)


def test_a_write_that_is_larger_than_all_that_may_wait_is_taken_when_nothing_waits() -> None:
    async def scenario(node: SimNode) -> None:
        partition = await (await node.queue(1, CONFIG)).add_partition(0)
        assert await _write(partition, 2 * LIMIT, 0) == WriteResult(0, duplicate=False)
        held, waiting = await _blocked_writes(node, partition)
        with pytest.raises(WriteQueueFullError):
            await _write(partition, 2 * LIMIT, 10)
        held.set()
        await asyncio.gather(*waiting, return_exceptions=True)
        assert await _write(partition, 2 * LIMIT, 10)

    on_node(scenario)


def test_writes_that_failed_or_were_known_wait_no_more() -> None:
    async def scenario(node: SimNode) -> None:
        partition = await (await node.queue(1, CONFIG)).add_partition(0)
        node.hooked.on(LOG, ERROR)
        for _ in range(10):
            await asyncio.gather(*(_write(partition, 3000, seqno) for seqno in range(3)), return_exceptions=True)
        node.hooked.on(LOG, Fate())
        for _ in range(10):
            results = await asyncio.gather(*(_write(partition, 3000, seqno) for seqno in range(3)))
            assert [result.base_offset for result in results] == [0, 1, 2]

    on_node(scenario)
