"""Positions of durable consumers when a store fails: none moves back by what comes after."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from penstock.broker.streams.positions import Positions
from penstock.core.errors import UnavailableError
from penstock.tablet import KvTablet, Request, Result
from tests.sim_tablet import SimNode, on_node


class FailingOnce:
    """A tablet whose first request fails."""

    def __init__(self, tablet: KvTablet) -> None:
        self._tablet = tablet
        self._has_failed = False

    @property
    def generation(self) -> int:
        return self._tablet.generation

    async def execute(self, request: Request) -> list[Result]:
        if not self._has_failed:
            self._has_failed = True
            await asyncio.sleep(1)
            raise UnavailableError("not now")
        return await self._tablet.execute(request)

    def head(self, key: bytes) -> bytes | None:
        return self._tablet.head(key)

    def keys(self, begin: bytes, end: bytes | None) -> Iterator[bytes]:
        return self._tablet.keys(begin, end)


def test_what_fails_does_not_let_a_lower_position_overtake_a_higher_one() -> None:
    async def scenario(node: SimNode) -> None:
        tablet = await node.kv(1)
        positions = Positions(FailingOnce(tablet))
        first = asyncio.create_task(positions.move("worker", "orders", 5))
        await asyncio.sleep(0.1)  # it is on its way
        second = asyncio.create_task(positions.move("worker", "orders", 7))
        with pytest.raises(UnavailableError):
            await first
        assert await positions.move("worker", "orders", 6) == 7
        assert await second == 7
        assert positions.position("worker", "orders") == 7
        assert Positions(tablet).position("worker", "orders") == 7

    on_node(scenario)
