"""Owners of tablets, as the leader writes them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import cast

import pytest

from penstock.coordination import Coordination, Entry, KeyChange, Outcome, OwnerMap, Put
from penstock.core.errors import UnavailableError
from penstock.placement.owners import Owners
from penstock.testing.sim_loop import run_simulation


class SlowCoordination:
    """Keeps what was written; each write takes a while, and has the outcome that is set."""

    def __init__(self) -> None:
        self.writes: list[dict[int, int]] = []
        self.stored: list[KeyChange] = []
        self.outcome = Outcome.DONE

    async def read_owners(self) -> OwnerMap:
        owners = OwnerMap()
        owners.follow(self.stored)
        await asyncio.sleep(0.2)
        return owners

    async def assign_each(self, owners: OwnerMap, wanted: Mapping[int, int]) -> Outcome:
        self.writes.append(dict(wanted))
        await asyncio.sleep(0.1)
        for change in owners.plan_each(wanted):
            owners.apply(change, len(self.writes))
            puts = [Entry(put.key, put.value, len(self.writes)) for put in change.changes if isinstance(put, Put)]
            self.stored += (KeyChange(entry.key, None, entry) for entry in puts)
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


def test_what_is_read_during_a_write_is_what_the_write_leaves() -> None:
    async def main() -> None:
        owners = Owners(cast("Coordination", SlowCoordination()))
        await owners.assign({1000: 1})
        writing = asyncio.create_task(owners.assign({1000: 2}))
        await asyncio.sleep(0.05)
        assert (await owners.read()).owner_of(1000) == 2
        await writing
        await asyncio.sleep(1)
        assert (await owners.read()).owner_of(1000) == 2

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
