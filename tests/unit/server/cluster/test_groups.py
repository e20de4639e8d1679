"""Storage groups as a node of a cluster opens them."""

from __future__ import annotations

import asyncio
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.blob import DYNAMIC_GROUPS_FROM, BlobStorage, Configuration, Erasure, GroupOptions, Seat, VDiskHost
from penstock.core.clock import SystemClock
from penstock.interconnect import Interconnect, NodeIdentity, SocketNetwork
from penstock.server.cluster.groups import ClusterGroups


def test_links_that_break_while_a_group_is_opened_are_noted_and_nothing_is_left_if_it_cannot_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[tuple[int, bool]] = []

    async def test() -> None:
        clock, random = SystemClock(), Random(1)
        interconnect = Interconnect(NodeIdentity(b"c" * 16, 1, 1), SocketNetwork(), clock=clock, random=random)

        async def start(host: VDiskHost) -> None:
            interconnect._notify(2, False)
            raise OSError("the disk is not there")

        monkeypatch.setattr(VDiskHost, "start", start)
        monkeypatch.setattr(VDiskHost, "note_link", lambda _, node, is_up: seen.append((node, is_up)))
        nothing = cast("Any", None)
        storage = BlobStorage(clock=clock, random=random)
        options = GroupOptions()
        groups = ClusterGroups(1, nothing, interconnect, nothing, storage, clock=clock, random=random, options=options)
        seats = tuple(Seat(1, f"disk{number}") for number in range(3))
        with pytest.raises(OSError, match="not there"):
            await groups._open(Configuration(DYNAMIC_GROUPS_FROM, 1, Erasure.MIRROR_3, seats, is_formed=True))
        interconnect._notify(3, False)
        assert seen == [(2, False)]
        await interconnect.close()

    asyncio.run(test())


def test_a_node_is_in_step_once_its_disk_has_got_what_it_missed() -> None:
    nothing = cast("Any", None)
    clock, random = SystemClock(), Random(1)
    storage = BlobStorage(clock=clock, random=random)
    groups = ClusterGroups(1, nothing, nothing, nothing, storage, clock=clock, random=random, options=GroupOptions())
    seats = tuple(Seat(number, "disk0") for number in (1, 2, 3))
    configuration = Configuration(DYNAMIC_GROUPS_FROM, 1, Erasure.MIRROR_3, seats, is_formed=True)
    compared: set[int] = set()
    own = SimpleNamespace(in_step=True, proves_absence=True)
    host = SimpleNamespace(hosted=[0], vdisks={0: own}, elsewhere={1: True, 2: False}, has_compared=compared.__contains__)
    groups.memberships[configuration.group] = cast("Any", SimpleNamespace(configuration=configuration))
    groups.hosts[configuration.group] = cast("Any", host)
    assert groups.nodes_in_step(configuration.group) == {2}
    assert groups.behind() == {configuration.group}
    compared.add(0)
    assert groups.nodes_in_step(configuration.group) == {1, 2}
    assert groups.behind() == frozenset()
    own.proves_absence = False
    assert groups.nodes_in_step(configuration.group) == {2}
