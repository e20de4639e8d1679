"""Topics with more partitions than one tablet takes."""

from __future__ import annotations

import asyncio

import pytest

from penstock.broker.catalog import PARTITIONS_PER_TABLET
from penstock.core.errors import PenstockError
from penstock.testing.batches import make_batch
from penstock.testing.sim_loop import run_simulation
from tests.sim_broker import SimBroker

WIDE = 2 * PARTITIONS_PER_TABLET + 1
FAR = WIDE - 1


async def _write(host: SimBroker, number: int, value: bytes) -> int:
    return (await host.do(host.broker.produce(host.topic("wide"), number, make_batch([value])))).base_offset


def test_partitions_are_spread_over_tablets_and_stay_where_they_are_when_more_come() -> None:
    async def scenario() -> None:
        host = await SimBroker().start()
        await host.do(host.broker.create_topic("wide", WIDE))
        tablets = host.topic("wide").tablets
        assert [tablets.count(each) for each in sorted(set(tablets))] == [PARTITIONS_PER_TABLET, PARTITIONS_PER_TABLET, 1]
        await _write(host, FAR, b"one")
        await host.do(host.broker.add_partitions("wide", WIDE + 3))
        assert host.topic("wide").tablets[:WIDE] == tablets
        assert not set(host.topic("wide").tablets[WIDE:]) & set(tablets)
        await host.restart()
        assert await _write(host, FAR, b"two") == 1
        await host.stop()

    run_simulation(scenario())


def test_while_one_tablet_is_down_the_partitions_of_others_are_written_to() -> None:
    async def scenario() -> None:
        host = await SimBroker().start()
        await host.do(host.broker.create_topic("wide", WIDE))
        await _write(host, 0, b"near")
        await host.break_tablet("wide")
        with pytest.raises(PenstockError) as refused:
            await _write(host, 1, b"not now")
        assert refused.value.retriable
        assert await _write(host, FAR, b"far") == 0
        while True:
            try:
                assert await _write(host, 0, b"again") == 1
                break
            except PenstockError:
                await asyncio.sleep(0.1)
        await host.stop()

    run_simulation(scenario())
