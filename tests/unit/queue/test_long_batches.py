"""Long batches, whose checksums go into those of the records that hold them."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from penstock.queue import BlobCache, SourceWrite
from penstock.testing.batches import make_batch
from tests.sim_tablet import SimNode, content, history, on_node

SIZES = (100, 5000, 9000, 40_000, 65_000, 65_536, 70_000, 150_000, 300_000)


@pytest.mark.parametrize("seed", range(5))
def test_what_is_read_from_the_disk_matches_its_checksums(seed: int) -> None:
    async def scenario(node: SimNode) -> None:
        node.cache = BlobCache(0)
        partition = await (await node.queue(1)).add_partition(0)
        sizes = Random(seed).choices(SIZES, k=40)
        values = [content(size, seqno) for seqno, size in enumerate(sizes)]
        writes = (partition.write(make_batch([value]), SourceWrite(b"source", seqno)) for seqno, value in enumerate(values))
        await asyncio.gather(*writes)
        again = (await node.queue(2)).partition(0)
        assert await history(again) == list(enumerate(values))

    on_node(scenario)
