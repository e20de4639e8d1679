"""Rebuilding a lost store from what the disks of nodes know: how many of them must have been read, and what wins."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from penstock.blob import DYNAMIC_GROUPS_FROM, Configuration, Erasure, Seat
from penstock.coordination import ClusterMark, Coordination, KeyTable, MemoryStore, Position, WrongClusterError
from penstock.server.cluster.groups import group_ids, system_group
from penstock.server.cluster.recovery import NodeExport, TooFewDisksError, read_export, recover, write_export
from penstock.server.errors import DirectoryMismatchError

FIRST, SECOND = DYNAMIC_GROUPS_FROM, DYNAMIC_GROUPS_FROM + 1


def group(number: int, nodes: list[int], generation: int = 1, erasure: Erasure = Erasure.MIRROR_3) -> Configuration:
    """A group with a disk on each of these nodes."""
    return Configuration(number, generation, erasure, tuple(Seat(node, "disk0") for node in nodes))


def export(node_id: int, *configurations: Configuration, cluster_id: str = "c1", groups: tuple[int, ...] = ()) -> NodeExport:
    """What a node with one disk knows."""
    mark = ClusterMark(cluster_id, 0, Position("store", 100 + node_id))
    known = {configuration.group for configuration in configurations} | set(groups)
    vdisks = [(Seat(node_id, "disk0"), configuration) for configuration in configurations]
    return NodeExport(mark, 1, node_id, frozenset(known), vdisks, {})


def with_store(work: Callable[[Coordination], Coroutine[Any, Any, None]]) -> None:
    """Work on the coordination of an empty store."""

    async def run() -> None:
        coordination = Coordination(MemoryStore(KeyTable("store"), time.monotonic), now=time.monotonic)
        await work(coordination)
        await coordination.close()

    asyncio.run(run())


def refusal(exports: list[NodeExport], *, accept_missing: bool = False) -> str:
    """Why a store is not rebuilt from these; it stays empty."""
    told: list[str] = []

    async def work(coordination: Coordination) -> None:
        with pytest.raises(TooFewDisksError) as caught:
            await recover(coordination, "tested", exports, accept_missing=accept_missing)
        told.append(str(caught.value))

    with_store(work)
    return told[0]


@pytest.mark.parametrize(
    ("erasure", "read", "too_few"),
    [
        (Erasure.MIRROR_3, [1, 3], [2]),
        (Erasure.BLOCK_4_2, [1, 2, 3, 4, 5, 8], [1, 2, 3, 4, 5]),
        (Erasure.MIRROR_3_DC, [1, 2, 3, 4, 5], [1, 2, 4, 5, 7]),
        (Erasure.MIRROR_3_DC, [1, 2, 4, 5, 7, 8, 9], [1, 2, 3]),
    ],
)
def test_a_quorum_of_the_disks_of_a_group_is_enough_and_less_is_refused(
    erasure: Erasure, read: list[int], too_few: list[int]
) -> None:
    nodes = list(range(1, erasure.shape.disks + 1))
    configuration = group(FIRST, nodes, erasure=erasure)

    async def work(coordination: Coordination) -> None:
        recovered = await recover(coordination, "tested", [export(node, configuration) for node in read])
        assert recovered.unread == [f"{node}:disk0" for node in nodes if node not in read]
        assert (recovered.identity.kind, recovered.identity.recoveries) == (erasure.value, 1)
        await coordination.open()
        assert group_ids(coordination) == {FIRST}

    with_store(work)
    told = refusal([export(node, configuration) for node in too_few])
    assert f"{len(too_few)} of {len(nodes)} disks were read" in told
    assert all(f"{node}:disk0" in told for node in nodes if node not in too_few)


def test_missing_disks_of_a_group_can_be_accepted_as_lost() -> None:
    async def work(coordination: Coordination) -> None:
        recovered = await recover(coordination, "tested", [export(1, group(FIRST, [1, 2, 3]))], accept_missing=True)
        assert recovered.unread == ["2:disk0", "3:disk0"]

    with_store(work)


def test_the_newest_configuration_of_any_disk_wins_and_disks_that_were_left_do_not_count() -> None:
    before, after = group(FIRST, [1, 2, 3]), group(FIRST, [1, 2, 4], generation=2)
    told = refusal([export(2, after), export(3, before)])
    assert "1 of 3 disks" in told
    assert "1:disk0, 4:disk0" in told

    async def work(coordination: Coordination) -> None:
        await recover(coordination, "tested", [export(1, before), export(2, after), export(3, before)])
        await coordination.open()
        (entry,) = coordination.groups().values()
        assert Configuration.unpack(entry.value) == after

    with_store(work)


def test_a_group_of_which_no_disk_was_read_is_refused_or_accepted_as_lost_unless_the_catalog_is_in_it() -> None:
    first, second = group(FIRST, [1, 2, 3]), group(SECOND, [4, 5, 6])
    nodes = [export(node, first, groups=(SECOND,)) for node in (1, 2, 3)]
    told = refusal(nodes)
    assert f"no disk of storage group {SECOND:08x} was read" in told
    assert "--accept-missing" in told
    others = [export(node, second, groups=(FIRST,)) for node in (4, 5, 6)]
    assert "--accept-missing" not in refusal(others, accept_missing=True)

    async def work(coordination: Coordination) -> None:
        await recover(coordination, "tested", nodes, accept_missing=True)
        await coordination.open()
        assert group_ids(coordination) == {FIRST}
        # A node that has a disk of it tells of it when it starts.
        await coordination.restore_group(SECOND, second.pack())
        await coordination.restore_group(SECOND, group(SECOND, [7, 8, 9]).pack())
        entry = await coordination.read_group(SECOND)
        assert entry is not None
        assert Configuration.unpack(entry.value) == second
        assert system_group(coordination) == FIRST

    with_store(work)


def test_a_store_that_has_a_newer_configuration_than_the_disks_keeps_it() -> None:
    older, newer = group(FIRST, [1, 2, 3]), group(FIRST, [1, 2, 4], generation=2)

    async def work(coordination: Coordination) -> None:
        await recover(coordination, "tested", [export(1, newer), export(2, newer)])
        recovered = await recover(coordination, "tested", [export(1, older), export(2, older)])
        assert recovered.identity.recoveries == 2
        await coordination.open()
        (entry,) = coordination.groups().values()
        assert Configuration.unpack(entry.value) == newer
        with pytest.raises(WrongClusterError):
            await recover(coordination, "tested", [export(1, newer, cluster_id="c2"), export(2, newer, cluster_id="c2")])

    with_store(work)


def test_an_export_is_read_back_and_a_damaged_one_is_refused(tmp_path: Path) -> None:
    written = export(2, group(FIRST, [1, 2, 3]), group(SECOND, [2, 3, 4]))._replace(unreadable={"disk1": "is not mounted"})
    write_export(written, tmp_path / "n2.json")
    assert read_export(tmp_path / "n2.json") == written
    raw = (tmp_path / "n2.json").read_text(encoding="utf-8")
    (tmp_path / "damaged.json").write_text(raw.replace('"configuration": "UE', '"configuration": "AA'), encoding="utf-8")
    with pytest.raises(DirectoryMismatchError, match=r"is damaged: .*; export it again"):
        read_export(tmp_path / "damaged.json")
    with pytest.raises(DirectoryMismatchError, match="penstock cluster export"):
        read_export(tmp_path / "none.json")


def test_nodes_of_two_clusters_and_nodes_without_disks_are_refused() -> None:
    async def work(coordination: Coordination) -> None:
        configuration = group(FIRST, [1, 2, 3])
        with pytest.raises(DirectoryMismatchError, match="not of one cluster"):
            await recover(coordination, "tested", [export(1, configuration), export(2, configuration, cluster_id="c2")])
        with pytest.raises(DirectoryMismatchError, match="no disk of these nodes has a VDisk"):
            await recover(coordination, "tested", [export(1)])

    with_store(work)
