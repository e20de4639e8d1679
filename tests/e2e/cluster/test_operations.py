"""What an operator does with a cluster: a fourth node, a replaced disk, a changed address, a lost machine, a lost etcd."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from penstock.server.cluster.directory import MARK_NAME
from penstock.server.json_file import read_fields
from tests.e2e.cluster.running_cluster import NAME, RunningCluster, running_cluster, until
from tests.e2e.running_node import penstock


def nodes(cluster: RunningCluster) -> dict[str, dict[str, Any]]:
    """What `penstock node list` shows, by name."""
    return {node["name"]: node for node in json.loads(cluster.ok("node", "list", "-o", "json"))}


def replace_lost_disk(cluster: RunningCluster) -> int:
    """A node is lost for good: another takes its place, and it is removed. Returns its number."""
    shown = nodes(cluster)
    ids = {name: node["node"] for name, node in shown.items()}
    standby = next(number for number in (1, 2, 3) if shown[f"n{number}"]["state"] == "running")
    cluster.kill(standby)
    answer = cluster.ok("disk", "replace", f"{ids[f'n{standby}']}:disk0", "--to", f"{ids['n4']}:disk0")
    assert f"to node {ids['n4']} disk0" in answer
    cluster.wait_ready(4)
    # Should it come back after all, it makes room: the group is whole without it.
    left = cluster.directory / f"n{standby}" / "disk0"
    assert list(left.glob("82*"))
    cluster.start(standby)
    until("what its VDisk left is removed", lambda: not list(left.glob("82*")))
    cluster.kill(standby)
    until("it is away", lambda: nodes(cluster)[f"n{standby}"]["state"] == "away")
    assert "is removed" in cluster.ok("node", "remove", str(ids[f"n{standby}"]))
    assert f"n{standby}" not in nodes(cluster)
    code, _, errors = cluster.run("node", "remove", str(ids["n4"]))
    assert (code, "replace its disks first" in errors) == (1, True)
    return standby


def replace_lost_machine(cluster: RunningCluster, number: int) -> None:
    """The directory of a node is gone: another of the same name has its id, and its disks are refilled."""
    before = nodes(cluster)[f"n{number}"]["node"]
    assert cluster.nodes.pop(number).stop() == 0
    shutil.rmtree(cluster.directory / f"n{number}")
    cluster.start(number, "--replaces-node", "true")
    cluster.wait_ready(number)
    assert nodes(cluster)[f"n{number}"]["node"] == before


def take_out_disk_of_leader(cluster: RunningCluster) -> None:
    """The node that leads is not ready either while a disk of it is out: who restarts one node after another waits for it."""
    active = cluster.active()
    disk = cluster.directory / f"n{active}" / "disk0"
    away = disk.rename(disk.with_name("away"))
    until("it is ready", lambda: any("is out" in reason for reason in cluster.readiness(active).get("reasons", ())))
    away.rename(disk)
    cluster.wait_ready(active)


def lose_etcd(cluster: RunningCluster) -> None:
    """etcd comes back with nothing in it."""
    cluster.etcd.stop()
    cluster.etcd.empty()
    cluster.etcd.start()


def export(cluster: RunningCluster, number: int) -> Path:
    """What the disks of a node know, as its machine writes it to a file."""
    file = cluster.directory / f"n{number}.json"
    done = penstock("cluster", "export", str(file), "--data-dir", str(cluster.directory / f"n{number}"))
    assert b"with 1 VDisks" in done.stdout, done.stderr
    return file


def recover_etcd_of_running_nodes(cluster: RunningCluster) -> None:
    """Nodes that run while etcd loses its data go on by themselves once it is rebuilt from the disks of a quorum."""
    _, *others = sorted(cluster.nodes)
    lose_etcd(cluster)
    until("they refuse etcd", lambda: any("cluster recover" in str(cluster.readiness(number)) for number in cluster.nodes))
    files = [word for number in others for word in ("--from", str(export(cluster, number)))]
    code, _, errors = cluster.run("cluster", "recover", *files[:2])
    assert (code, "1 of 3 disks were read" in errors, "cluster export" in errors) == (1, True, True), errors
    assert "for the 1. time" in cluster.ok("cluster", "recover", *files)
    for number in cluster.nodes:
        cluster.wait_ready(number)
    until("all know that etcd was rebuilt", lambda: {recoveries_seen(cluster, number) for number in cluster.nodes} == {1})
    cluster.use("produce", "t", "third")


def recoveries_seen(cluster: RunningCluster, number: int) -> int:
    """How often etcd was rebuilt, as a node keeps it on its disk."""
    kept = read_fields(cluster.directory / f"n{number}" / MARK_NAME, {"recoveries": int})
    assert kept is not None
    times: int = kept["recoveries"]
    return times


def test_nodes_disks_machines_and_etcd_are_replaced(tmp_path: Path) -> None:
    with running_cluster(tmp_path) as cluster:
        cluster.use("produce", "t", "first")
        take_out_disk_of_leader(cluster)
        cluster.start(4)
        left = replace_lost_disk(cluster)
        # A node at another address is found there, and the group has a copy on it: it serves without another.
        cluster.kill(4)
        cluster.move(4)
        cluster.start(4)
        cluster.wait_ready(4)
        cluster.use("produce", "t", "second")
        standby = next(number for number in cluster.nodes if number not in (4, cluster.active()))
        replace_lost_machine(cluster, standby)
        members = sorted(cluster.nodes)
        assert left not in members
        level = cluster.run("cluster", "raise-level")
        assert (level[0], "knows no higher one; upgrade all nodes first" in level[2]) == (1, True), level
        recover_etcd_of_running_nodes(cluster)
        for number in members:
            assert cluster.nodes.pop(number).stop() == 0
        lose_etcd(cluster)
        refused = penstock("up", *cluster.options(4))
        assert (refused.returncode, b"penstock cluster recover" in refused.stderr) == (1, True), refused.stderr
        etcd = ("--etcd", cluster.etcd.urls[0], "--name", NAME)
        recovered = penstock(
            "cluster", "recover", *etcd, "--data-dir", str(tmp_path / "n4"), "--from", str(export(cluster, standby))
        )
        assert b"is rebuilt" in recovered.stdout, recovered.stderr
        assert b"for the 2. time" in recovered.stdout
        assert b"not read: " in recovered.stdout
        cluster.start_all(members)
        assert cluster.use("consume", "t").split() == ["first", "second", "third"]
