"""Groups of more nodes, each a process of its own, under load of a stock client: every set of nodes that the kind of the group
tolerates may be killed at once, the active node among them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.e2e.cluster.numbers import Writer, check_numbers
from tests.e2e.cluster.running_cluster import RunningCluster, running_cluster

WAIT_S = 120.0  # this many processes need a while on few cores

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]


def kill_and_restart(cluster: RunningCluster, writer: Writer, numbers: Sequence[int]) -> None:
    """Kill nodes at once, see that writes go on, and start them again."""
    for number in numbers:
        cluster.kill(number)
    writer.go_on(WAIT_S)
    cluster.start_all(numbers)
    for number in numbers:
        cluster.wait_ready(number, WAIT_S)
    writer.go_on(WAIT_S)


def check(cluster: RunningCluster, writer: Writer, sets: Sequence[Sequence[int]]) -> None:
    """Kill one set after the other. Nothing acknowledged is lost or doubled."""
    writer.go_on(WAIT_S)
    for numbers in sets:
        kill_and_restart(cluster, writer, numbers)
    writer.end()
    check_numbers(writer, cluster.bootstrap)


def test_any_two_of_the_eight_nodes_of_block_4_2_may_be_killed(tmp_path: Path) -> None:
    with running_cluster(tmp_path, 8, "block-4-2") as cluster:
        writer = Writer(cluster.bootstrap)
        active = cluster.active()
        others = [number for number in range(1, 9) if number != active]
        check(cluster, writer, [(active, others[0]), others[1:3], others[3:5], others[5:7]])


def test_a_datacenter_and_a_node_of_mirror_3_dc_may_be_killed(tmp_path: Path) -> None:
    datacenters = {number: (number - 1) // 3 for number in range(1, 10)}
    options: Mapping[int, Sequence[str]] = {number: ("--datacenter", f"d{at}") for number, at in datacenters.items()}
    with running_cluster(tmp_path, 9, "mirror-3-dc", options=options) as cluster:
        writer = Writer(cluster.bootstrap)
        there = datacenters[cluster.active()]
        sets = []
        for lost in (there, (there + 1) % 3, (there + 2) % 3):
            another = next(number for number, at in datacenters.items() if at == (lost + 1) % 3)
            sets.append([*(number for number, at in datacenters.items() if at == lost), another])
        check(cluster, writer, sets)
