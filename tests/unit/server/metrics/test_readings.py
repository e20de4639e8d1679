"""What a scrape tells of the links between nodes."""

from __future__ import annotations

import asyncio

from penstock.interconnect import CallStatus
from penstock.server.metrics import declarations as m
from penstock.server.metrics.metric import Samples
from penstock.server.metrics.readings import read_interconnect
from penstock.testing.sim_loop import run_simulation
from tests.interconnect_world import ECHO, FAIL, SimNode, new_network


def test_links_are_counted_by_peer_and_served_calls_by_status() -> None:
    async def main() -> None:
        network = new_network()
        first, second = await SimNode(network, 1).start(), await SimNode(network, 2).start()
        link = await first.link_to(second)
        for _ in range(3):
            assert (await link.call(ECHO, 1, (bytes(1000),), timeout_s=1.0)).status is CallStatus.OK
        assert (await link.call(FAIL, 1, (), timeout_s=1.0)).status is CallStatus.FAILED
        await asyncio.sleep(1.0)
        here, there = Samples(), Samples()
        read_interconnect(first.interconnect, here)
        read_interconnect(second.interconnect, there)
        assert here.by_metric[m.LINK_CONNECTED] == [(("2",), 1)]
        assert here.by_metric[m.LINK_CALLS] == [(("2",), 4)]
        assert here.by_metric[m.LINK_ERRORS] == [(("2", "failed"), 1)]
        for metric in (m.LINK_SENT, m.LINK_RECEIVED):
            ((labels, value),) = here.by_metric[metric]
            assert labels == ("2",)
            assert isinstance(value, int)
            assert value > 3000
        assert (there.by_metric[m.SERVED_CALLS], there.by_metric[m.SERVED_ERRORS]) == ([((), 4)], [(("failed",), 1)])
        second.process.crash()
        await asyncio.sleep(0.1)
        after = Samples()
        read_interconnect(first.interconnect, after)
        assert after.by_metric[m.LINK_CONNECTED] == [(("2",), 0)]

    run_simulation(main(), seed=1)
