"""Many partitions do not take a head's worth of memory each."""

from __future__ import annotations

import asyncio

from penstock.broker.head_limit import INTERVAL_S, ROLLED_MIN
from penstock.testing.batches import make_batch
from penstock.testing.sim_loop import run_simulation
from tests.sim_broker import SimBroker

CACHE_BYTES = 4 << 20
LARGE = 900 << 10


async def _heads_past_the_limit() -> None:
    host = await SimBroker().start()
    host.broker.tablets.cache.bytes_max = CACHE_BYTES
    await host.do(host.broker.create_topic("many", 8))
    partitions = [host.partition("many", number) for number in range(8)]
    for partition in partitions[:6]:
        await host.do(partition.write(make_batch([b"v" * LARGE])))
    for partition in partitions[6:]:
        await host.do(partition.write(make_batch([b"v" * (ROLLED_MIN // 2)])))
    assert sum(partition.head_size for partition in partitions) > CACHE_BYTES
    await asyncio.sleep(2 * INTERVAL_S)
    assert sum(partition.head_size for partition in partitions) <= CACHE_BYTES // 2
    assert all(partition.head_size for partition in partitions[6:]), "those that are small stay"
    # What was moved is there for readers and after a restart, and what follows it has the next offset.
    for restarted in (False, True):
        if restarted:
            await host.restart()
        for number in range(8):
            partition = host.partition("many", number)
            found = await host.do(partition.read(0, 1 << 20))
            assert found.next_offset == partition.end_offset == 1
    assert (await host.do(host.partition("many", 0).write(make_batch([b"next"])))).base_offset == 1
    await host.stop()


def test_heads_past_the_limit_become_bodies() -> None:
    run_simulation(_heads_past_the_limit())
