"""What nodes tell each other of the tablets that they serve."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from penstock.server.cluster.serving_tablets import UNKNOWN_S, ServingTablets
from penstock.testing.sim_loop import current_loop, run_simulation
from tests.interconnect_world import SimNode, new_network


async def _serving(
    node: SimNode,
    other: SimNode,
    generations: dict[int, int],
    loads: dict[int, float],
    behind: Callable[[], frozenset[int]] = frozenset,
) -> ServingTablets:
    link = await node.link_to(other)
    return ServingTablets(
        node.node_id,
        node.interconnect,
        lambda _: link,
        own=lambda: generations,
        own_loads=lambda: loads,
        own_behind=behind,
        random=current_loop().fork_random(f"serving-{node.node_id}"),
        on_change=lambda: None,
    )


def test_how_busy_the_tablets_of_a_node_are_is_known_elsewhere_and_still_when_it_is_gone() -> None:
    async def main() -> None:
        network = new_network()
        first, second = await SimNode(network, 1).start(), await SimNode(network, 2).start()
        loads = {1001: 5.0, 1002: 70.0}
        told = await _serving(first, second, {1001: 1, 1002: 1}, loads)
        heard = await _serving(second, first, {}, {})
        heard.follow([1, 2])
        await asyncio.sleep(1)
        assert heard.elsewhere == {1: {1001: 1, 1002: 1}}
        assert heard.loads() == loads
        loads[1001] = 900.0  # though no tablet comes or goes
        await asyncio.sleep(10)
        assert heard.loads() == {1001: 900.0, 1002: 70.0}
        heard.follow([2])
        assert heard.elsewhere == {}
        assert heard.loads() == {1001: 900.0, 1002: 70.0}
        await told.stop()
        await heard.stop()

    run_simulation(main(), seed=1)


def test_a_node_whose_answer_is_not_understood_is_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        network = new_network()
        first, second = await SimNode(network, 1).start(), await SimNode(network, 2).start()
        generations: dict[Any, int] = {"of another version": 1}
        told = await _serving(first, second, generations, {})
        heard = await _serving(second, first, {}, {})
        heard.follow([1])
        await asyncio.sleep(1)
        assert heard.elsewhere == {}
        assert "what node 1 serves is not understood" in caplog.text
        del generations["of another version"]
        generations[1001] = 3
        await asyncio.sleep(UNKNOWN_S)
        assert heard.elsewhere == {1: {1001: 3}}
        await told.stop()
        await heard.stop()

    run_simulation(main(), seed=1)


def test_a_node_whose_disks_have_not_got_what_they_missed_is_behind_until_it_tells_otherwise() -> None:
    async def main() -> None:
        network = new_network()
        first, second = await SimNode(network, 1).start(), await SimNode(network, 2).start()
        missing = {7}
        told = await _serving(first, second, {}, {}, lambda: frozenset(missing))
        heard = await _serving(second, first, {}, {})
        heard.follow([1])
        await asyncio.sleep(1)
        assert heard.are_behind(7) == {1}
        assert heard.are_behind(8) == frozenset()
        missing.clear()
        told.check_behind()
        await asyncio.sleep(1)
        assert heard.are_behind(7) == frozenset()
        await told.stop()
        await heard.stop()

    run_simulation(main(), seed=1)
