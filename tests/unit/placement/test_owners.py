"""Owners of tablets, as the leader writes them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import cast

import pytest

from penstock.coordination import Coordination, Outcome, OwnerMap
from penstock.core.errors import UnavailableError
from penstock.placement.owners import Owners
from penstock.testing.sim_loop import run_simulation


class SlowCoordination:
    """Keeps what was written; each write takes a while, and has the outcome that is set."""

    def __init__(self) -> None:
        self.writes: list[dict[int, int]] = []
        self.outcome = Outcome.DONE

    async def read_owners(self) -> OwnerMap:
        return OwnerMap()

    async def assign_each(self, _: OwnerMap, wanted: Mapping[int, int]) -> Outcome:
        self.writes.append(dict(wanted))
        await asyncio.sleep(0.1)
        return self.outcome


def test_owners_that_are_to_be_written_during_a_write_are_written_together_after_it() -> None:
    async def main() -> None:
        store = SlowCoordination()
        owners = Owners(cast("Coordination", store))
        first = asyncio.create_task(owners.assign({1000: 1}))
        await asyncio.sleep(0.05)
        await asyncio.gather(first, *(owners.assign({tablet_id: 2}) for tablet_id in range(1001, 1031)))
        assert store.writes == [{1000: 1}, dict.fromkeys(range(1001, 1031), 2)]
        await owners.assign({1000: 3})
        assert store.writes[2:] == [{1000: 3}]

    run_simulation(main())


def test_a_write_that_fails_fails_for_all_that_it_was_for_and_for_no_other() -> None:
    async def main() -> None:
        store = SlowCoordination()
        owners = Owners(cast("Coordination", store))
        first = asyncio.create_task(owners.assign({1000: 1}))
        await asyncio.sleep(0.05)
        others = [asyncio.create_task(owners.assign({tablet_id: 2})) for tablet_id in (1001, 1002)]
        await first
        store.outcome = Outcome.UNKNOWN
        for other in others:
            with pytest.raises(UnavailableError):
                await other
        store.outcome = Outcome.DONE
        await owners.assign({1001: 2})

    run_simulation(main())
