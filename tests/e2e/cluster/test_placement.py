"""What an operator does with tablets under load of a stock client: drains a node, moves a tablet, stops the node that leads.
Everything acknowledged is there once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.e2e.cluster.numbers import TOPIC, Writer, check_numbers
from tests.e2e.cluster.running_cluster import RunningCluster, running_cluster, until


def nodes(cluster: RunningCluster) -> dict[int, dict[str, Any]]:
    """What `penstock node list` shows, by the id of the node."""
    return {node["node"]: node for node in json.loads(cluster.ok("node", "list", "-o", "json"))}


def tablets(cluster: RunningCluster, *options: str) -> dict[int, dict[str, Any]]:
    """What `penstock tablet list` shows, by the id of the tablet."""
    return {tablet["tablet"]: tablet for tablet in json.loads(cluster.ok("tablet", "list", "-o", "json", *options))}


def refused(cluster: RunningCluster, *argv: str) -> str:
    """Why a command fails."""
    code, _, errors = cluster.run(*argv)
    assert code == 1
    return errors


def check_api(cluster: RunningCluster, drained: int) -> None:
    """Every node shows the cluster as its leader sees it, and takes what operators want of it."""
    active = cluster.active()
    others = [number for number in cluster.nodes if number != active]
    for number in cluster.nodes:
        shown = cluster.api(number, "/nodes")
        assert {node["name"]: node["state"] for node in shown["nodes"]} == {
            f"n{known}": "leader" if known == active else "running" for known in cluster.nodes
        }
        assert sum(node["tablets"] for node in shown["nodes"]) == cluster.api(number, "/tablets")["total"]
        assert all(node["partitions"] and node["version"] and node["since_ms"] for node in shown["nodes"])
        groups = cluster.api(number, "/storage")["groups"]
        assert [(len(group["vdisks"]), group["state"]) for group in groups] == [(3, "healthy")]
        assert len({vdisk["node"] for vdisk in groups[0]["vdisks"]}) == 3
        assert all(vdisk["total"] and vdisk["used"] for vdisk in groups[0]["vdisks"])
        # Messages can be read on any node, wherever their partition is.
        partitions = cluster.api(number, f"/topics/{TOPIC}/partitions")["items"]
        assert {row["leader"] for row in partitions} == {node["node_id"] for node in shown["nodes"]}
        assert all(row["leader"] in row["in_sync"] for row in partitions)
        for partition in (row["partition"] for row in partitions):
            read = cluster.api(number, f"/topics/{TOPIC}/messages?partition={partition}&start=oldest&limit=2")["items"]
            assert [(message["partition"], message["offset"]) for message in read] == [(partition, 0), (partition, 1)]
        newest = cluster.api(number, f"/topics/{TOPIC}/messages?limit=500")["items"]
        assert {message["partition"] for message in newest} == {row["partition"] for row in partitions}
        times = {message["partition"]: message["timestamp"] for message in newest}
        found = cluster.api(number, f"/topics/{TOPIC}/messages?start=time:{max(times.values())}")["items"]
        assert found
        assert min(message["timestamp"] for message in found) >= max(times.values())
    assert "drains" in cluster.api(others[0], f"/nodes/{drained}/drain", method="POST")["message"]
    until("it is drained", lambda: not cluster.api(others[1], f"/tablets?node={drained}")["total"])
    assert cluster.api(others[1], "/nodes")["nodes"][drained - 1]["is_draining"]
    assert 'penstock_placement_moves_total{reason="drain"} 1' in cluster.metrics(active)
    drained_figure = f'penstock_placement_tablets{{node="{drained}"}} 0'
    until("the figures show it", lambda: drained_figure in cluster.metrics(active))
    cluster.api(others[0], f"/nodes/{drained}/undrain", method="POST")
    until("it has a tablet again", lambda: cluster.api(others[1], f"/tablets?node={drained}")["total"] == 1)


def check_purge(cluster: RunningCluster) -> None:
    """Any node deletes the messages of partitions on all nodes."""
    for number in cluster.nodes:
        assert len({row["leader"] for row in cluster.api(number, f"/topics/{TOPIC}/partitions")["items"]}) > 1
    number = next(number for number in cluster.nodes if number != cluster.active())
    assert cluster.api(number, f"/topics/{TOPIC}/purge", {}, "POST")["deleted"] > 0
    assert cluster.api(number, f"/topics/{TOPIC}/messages")["items"] == []


def test_nodes_are_drained_and_stopped_and_tablets_moved_under_load(tmp_path: Path) -> None:
    with running_cluster(tmp_path) as cluster:
        writer = Writer(cluster.bootstrap)
        writer.go_on()
        assert {node["tablets"] for node in nodes(cluster).values()} == {1}

        drained = next(number for number, node in nodes(cluster).items() if node["state"] == "running")
        check_api(cluster, drained)
        assert f"node {drained} owns no tablets" in cluster.ok("node", "drain", str(drained), "--wait")
        assert (nodes(cluster)[drained]["tablets"], nodes(cluster)[drained]["draining"]) == (0, True)
        assert not tablets(cluster, "--node", str(drained))
        moved = min(tablets(cluster, "--topic", TOPIC))
        assert "drains; undrain it first" in refused(cluster, "tablet", "move", str(moved), str(drained))
        writer.go_on()

        cluster.ok("node", "undrain", str(drained))
        until("it has a tablet again", lambda: nodes(cluster)[drained]["tablets"] == 1)
        target = next(number for number in nodes(cluster) if number != tablets(cluster)[moved]["node"])
        assert f"runs on node {target}" in cluster.ok("tablet", "move", str(moved), str(target))
        assert (tablets(cluster)[moved]["node"], tablets(cluster)[moved]["state"]) == (target, "up")
        assert "no topic has a tablet 5" in refused(cluster, "tablet", "move", "5", "1")
        assert "there is no node 9" in refused(cluster, "node", "drain", "9")
        writer.go_on()

        cluster.ok("node", "maintenance", "on")
        assert "maintenance: tablets of lost nodes wait" in cluster.ok("node", "maintenance", "on")
        cluster.ok("node", "maintenance", "off")
        leader = cluster.active()
        left = next(number for number, node in nodes(cluster).items() if node["name"] == f"n{leader}")
        assert cluster.nodes.pop(leader).stop() == 0
        assert not any(tablet["node"] == left for tablet in tablets(cluster).values())
        cluster.active()
        writer.go_on()
        writer.end()
        check_numbers(writer, cluster.bootstrap)
        check_purge(cluster)


def test_a_node_that_is_killed_is_listed_as_not_reached_before_its_lease_ends(tmp_path: Path) -> None:
    with running_cluster(tmp_path) as cluster:
        killed = cluster.active()
        cluster.kill(killed)
        others = sorted(f"n{number}" for number in cluster.nodes)

        def states() -> dict[str, str]:
            return {node["name"]: node["state"] for node in nodes(cluster).values()}

        def is_known() -> bool:
            return states()[f"n{killed}"] not in {"leader", "running"}

        until("it runs still", is_known)
        shown = states()
        assert shown.pop(f"n{killed}") == "unreached"
        assert sorted(shown) == others
        assert sorted(shown.values()) == ["leader", "running"]


def test_nodes_are_listed_though_no_leader_answers(tmp_path: Path) -> None:
    with running_cluster(tmp_path) as cluster:
        for number in list(cluster.nodes):
            cluster.kill(number)
        code, printed, _ = cluster.run("node", "list")
        assert code == 0
        assert all(f"n{number}" in printed for number in (1, 2, 3))
        assert "the states are those of etcd" in printed
