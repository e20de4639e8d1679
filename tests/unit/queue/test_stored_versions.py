"""Values of a later format are refused with a clear word, and never misread."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.broker.consumers import Position, pack_position, unpack_position
from penstock.core.errors import ConfigError, CorruptionError
from penstock.queue import SourceState, SourceWrite
from penstock.queue.clean_state import CleanState
from penstock.queue.keys import Description, Meta, prefix
from penstock.queue.sources import RecentBatch
from penstock.tablet import Request, Write
from penstock.testing.batches import make_batch
from tests.sim_tablet import SimNode, history, on_node

Unpack = Callable[[bytes], object]
STATE = SourceState(3, (RecentBatch(9, 100, 2), RecentBatch(11, 105, 2)))
VALUES: list[tuple[Unpack, bytes]] = [
    (Description.unpack, Description(10, 20, 30, 40, 5).pack()),
    (Meta.unpack, Meta(10, 20).pack()),
    (SourceState.unpack, STATE.pack()),
    (unpack_position, pack_position(Position(7), 0)),
    (CleanState.unpack, CleanState(5, 3).pack()),
]


@pytest.mark.parametrize(("unpack", "raw"), VALUES)
def test_a_value_of_a_later_format_is_refused(unpack: Unpack, raw: bytes) -> None:
    assert unpack(raw)
    later = raw[0] + 1
    with pytest.raises(ConfigError, match=rf"has format {later}, .* reads up to {raw[0]}; upgrade Penstock"):
        unpack(bytes((later,)) + raw[1:])


def test_a_description_of_before_messages_were_counted_is_read() -> None:
    old = Description(10, 20, 30, 40)
    assert old.pack()[0] == 1
    assert Description.unpack(old.pack()) == old


@pytest.mark.parametrize(("unpack", "raw"), VALUES)
@pytest.mark.parametrize("spoil", [lambda raw: b"", lambda raw: b"\0" + raw[1:]])
def test_a_value_in_no_format_at_all_is_corrupt(unpack: Unpack, raw: bytes, spoil: Callable[[bytes], bytes]) -> None:
    with pytest.raises(CorruptionError, match="no format that ever was"):
        unpack(spoil(raw))


@pytest.mark.parametrize(("unpack", "raw"), VALUES[:2])
def test_a_value_cut_short_is_corrupt(unpack: Unpack, raw: bytes) -> None:
    with pytest.raises(CorruptionError, match="bytes, not"):
        unpack(raw[:-1])


def test_a_partition_of_a_later_format_does_not_start() -> None:
    async def scenario(node: SimNode) -> None:
        queue = await node.queue(1)
        await queue.add_partition(0)
        await queue.tablet.execute(Request((Write(prefix(b"m", 0), b"\2" + Meta(0, 0).pack()[1:]),)))
        with pytest.raises(ConfigError, match="upgrade Penstock"):
            await node.queue(2)

    on_node(scenario)


def test_a_source_of_a_later_format_fails_its_writes_and_no_others() -> None:
    async def scenario(node: SimNode) -> None:
        queue = await node.queue(1)
        partition = await queue.add_partition(0)
        await queue.tablet.execute(Request((Write(prefix(b"s", 0) + b"later", b"\2" + STATE.pack()[1:]),)))
        with pytest.raises(ConfigError, match="upgrade Penstock"):
            await partition.write(make_batch([b"lost"]), SourceWrite(b"later", 50))
        await partition.write(make_batch([b"kept"]), SourceWrite(b"other", 0))
        assert await history(partition) == [(0, b"kept")]

    on_node(scenario)
