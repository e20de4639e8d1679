"""Runs in which disks that lost their memory, or that were away, made a group answer wrongly: each told in its few steps."""

from __future__ import annotations

import pytest

from penstock.blob import Erasure, Status
from penstock.blob.meta import BlockItem
from tests.sim_group import SimGroup, run_group

TABLET = (1).to_bytes(8, "big")
# Disks that a group can just do without, and the rest, which are just enough.
SPARE = {Erasure.BLOCK_4_2: (0, 1), Erasure.MIRROR_3_DC: (0, 1, 2, 3)}

redundant_kinds = pytest.mark.parametrize("erasure", list(SPARE))


async def _wipe(group: SimGroup, order: int) -> None:
    """Replace a disk by an empty one, which is not in step with the others yet."""
    await group.take_out(order)
    group.platters[order].wipe()
    await group.put_in(order)


@redundant_kinds
def test_s5_a_repeated_block_after_wipes_makes_no_second_owner_of_a_generation(erasure: Erasure) -> None:
    async def scenario(group: SimGroup) -> None:
        first, second = 7, 8
        # The first starter reaches a few disks and gives up; the second is told that the generation is its own.
        for order in SPARE[erasure]:
            reply = await group.do(group.life.vdisks[order].block(1, BlockItem(TABLET, 5, first)))
            assert reply.status is Status.OK
        assert (await group.do(group.proxy.block(1, 6, second))).status is Status.OK
        for order in group.orders:
            if order not in SPARE[erasure]:
                await _wipe(group, order)
                await group.refill()
        assert (await group.do(group.proxy.block(1, 6, first))).status is Status.ALREADY
        assert (await group.do(group.proxy.block(1, 7, first))).status is Status.OK

    run_group(erasure, scenario)
