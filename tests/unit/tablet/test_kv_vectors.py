"""Values written from several buffers: they are stored as they lie, several small ones in a blob, a huge one in several."""

from __future__ import annotations

import pytest

from penstock.tablet import Request, Write, blob_contents
from tests.sim_tablet import DATA, SimNode, content, on_node


@pytest.mark.parametrize(
    ("sizes", "blobs"),
    [
        ([61, 5000], [5061]),
        ([400, 400, 400, 400, 400, 400], [1200, 1200]),
        ([999, 1, 1, 1500], [1000, 1501]),
        ([61, 9000, 61, 9000], [61, 8000, 1000, 61, 8000, 1000]),
        ([3000, 7000, 500], [3000, 7000, 500]),
    ],
)
def test_a_value_in_several_buffers_is_stored_in_blobs_of_sensible_size_and_reads_as_one(
    sizes: list[int], blobs: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blob_contents, "VECTOR_BYTES", 1000)
    monkeypatch.setattr(blob_contents, "DATA_BLOB_MAX", 8000)
    buffers = tuple(content(size, number) for number, size in enumerate(sizes))

    async def scenario(node: SimNode) -> None:
        tablet = await node.kv(1)
        await tablet.execute(Request((Write(b"key", buffers),)))
        assert [blob.size for blob in node.hooked.puts if blob.channel == DATA] == blobs
        assert await tablet.read(b"key") == b"".join(buffers)
        tablet = await node.kv(2)
        assert await tablet.read(b"key", 50, 1000) == b"".join(buffers)[50:1050]

    on_node(scenario)
