"""Who may join a cluster, and as whom: what does not fit is refused with what to do, and nothing is changed."""

from __future__ import annotations

import asyncio
import shutil
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from penstock.cli.etcd_options import ask_leader
from penstock.cli.failure import CommandError
from penstock.coordination import (
    ClusterIdentity,
    DuplicateMemberError,
    NoClusterError,
    NodeNameTakenError,
    WrongClusterError,
)
from penstock.core.clock import SystemClock
from penstock.core.errors import ConfigError
from penstock.server import BadSettingError, DirectoryInUseError, DirectoryMismatchError, NodeConfig, load_config
from penstock.server.cluster import node as cluster_node
from penstock.server.cluster.conversion import convert
from penstock.server.cluster.directory import ClusterDirectory
from penstock.server.cluster.feature_level import RAISE_LEVEL
from penstock.server.cluster.node import ClusterNode
from penstock.server.data_directory import node_secret
from penstock.server.errors import ListenError
from penstock.server.node import Node
from tests.e2e.cluster.members import config, connected, create, read, serving_groups, write
from tests.e2e.coordination.etcd_process import EtcdCluster, running_etcd

WAIT_S = 60.0
TLS = Path(__file__).parents[1] / "interconnect" / "tls"


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdCluster]:
    """An etcd of one member."""
    with running_etcd(tmp_path_factory.mktemp("etcd")) as cluster:
        yield cluster


async def refused(config: NodeConfig, kind: type[ConfigError], text: str) -> None:
    """A node does not start."""
    with pytest.raises(kind, match=text):
        await ClusterNode.start(config)


def test_a_node_keeps_its_id_and_another_with_its_name_or_directory_is_refused(etcd: EtcdCluster, tmp_path: Path) -> None:
    async def test() -> None:
        await refused(config(etcd, "ids", tmp_path / "n1"), NoClusterError, "penstock cluster init")
        await create(etcd, "ids")
        own = config(etcd, "ids", tmp_path / "n1")
        node = await ClusterNode.start(own)
        assert node.layout.node_id == 1
        first = node._directory.incarnation
        await refused(replace(own, interconnect_port=0), DirectoryInUseError, "in use by another process")
        await refused(config(etcd, "ids", tmp_path / "other"), NodeNameTakenError, "choose another name")
        another = config(etcd, "ids", tmp_path / "another", "n4")
        with socket.create_server(("127.0.0.1", another.kafka_port)):
            await refused(another, ListenError, f"cannot listen on 127.0.0.1:{another.kafka_port}: .* or --kafka-port")
        shutil.copytree(tmp_path / "n1", tmp_path / "copy")
        await refused(config(etcd, "ids", tmp_path / "copy"), DuplicateMemberError, "with a copy of this data directory")
        second = await ClusterNode.start(config(etcd, "ids", tmp_path / "n2", "n2"))
        assert second.layout.node_id == 2
        await second.stop()
        await node.stop()
        # The directory has another name now, and none of the cluster's nodes may have two.
        await refused(replace(own, node_name="n3"), NodeNameTakenError, "named n1")
        node = await ClusterNode.start(own)
        assert (node.layout.node_id, node._directory.incarnation > first) == (1, True)
        await node.stop()
        with pytest.raises(DirectoryMismatchError, match="start it with --etcd"):
            await Node.start(NodeConfig(data_dir=tmp_path / "n1", kafka_port=0, http_port=None))

    asyncio.run(test())


def test_another_cluster_and_a_level_that_is_too_high_are_refused(etcd: EtcdCluster, tmp_path: Path) -> None:
    async def test() -> None:
        await create(etcd, "one")
        await create(etcd, "two", "11111111-ceea-467f-a1d2-0c1d2e3f4a5b")
        node = await ClusterNode.start(config(etcd, "one", tmp_path / "n1"))
        await node.stop()
        await refused(config(etcd, "two", tmp_path / "n1"), WrongClusterError, "name the store of that cluster")
        newer = ClusterIdentity(cluster_id="8f14e45f-ceea-467f-a1d2-0c1d2e3f4a5b", name="new", kind="mirror-3", feature_level=9)
        coordination = connected(etcd, "new")
        await coordination.create_cluster(newer)
        await coordination.close()
        await refused(config(etcd, "new", tmp_path / "n9"), ConfigError, "at feature level 9, and this version")
        single = await Node.start(NodeConfig(data_dir=tmp_path / "single", kafka_port=0, http_port=None))
        await single.stop()
        await refused(config(etcd, "one", tmp_path / "single"), DirectoryMismatchError, "of a single node")
        wrong_disk = replace(config(etcd, "one", tmp_path / "n3", "n3"), disks=(tmp_path / "n1" / "disk0",))
        await refused(wrong_disk, DirectoryMismatchError, "of node 1 of cluster")

    asyncio.run(test())


def test_a_node_with_another_ca_or_a_wrong_clock_is_refused(
    etcd: EtcdCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def secured(number: int, ca: str = "ca_a.pem") -> NodeConfig:
        own = config(etcd, "secured", tmp_path / f"n{number}", f"n{number}")
        return replace(
            own,
            interconnect_ca=TLS / ca,
            interconnect_cert=TLS / "node_a.pem",
            interconnect_key=TLS / "node_a.key.pem",
        )

    class WrongClock(SystemClock):
        def wall(self) -> float:
            return super().wall() + 61.0

    async def test() -> None:
        await create(etcd, "secured")
        first = await ClusterNode.start(secured(1))
        second = await ClusterNode.start(secured(2))
        async with asyncio.timeout(10):
            while first._peers.down_s(2) or second._peers.down_s(1):  # noqa: ASYNC110 - a test that looks on
                await asyncio.sleep(0.02)
        await refused(secured(3, "ca_b.pem"), ConfigError, "this node cannot join: .*certificate verify failed")
        plain = config(etcd, "secured", tmp_path / "n3", "n3")
        await refused(plain, ConfigError, r"node . \(n.\) speaks TLS with other nodes, and this node does not: give all nodes")
        monkeypatch.setattr(cluster_node, "SystemClock", WrongClock)
        await refused(secured(3), ConfigError, "the clocks of nodes . and . are 61 s apart")
        await second.stop()
        await first.stop()

    asyncio.run(test())


def test_a_node_with_certificates_is_refused_by_a_cluster_without(etcd: EtcdCluster, tmp_path: Path) -> None:
    async def test() -> None:
        await create(etcd, "plain")
        first = await ClusterNode.start(config(etcd, "plain", tmp_path / "n1"))
        files = {name: TLS / file for name, file in (("ca", "ca_a.pem"), ("cert", "node_a.pem"), ("key", "node_a.key.pem"))}
        secured = replace(
            config(etcd, "plain", tmp_path / "n2", "n2"),
            interconnect_ca=files["ca"],
            interconnect_cert=files["cert"],
            interconnect_key=files["key"],
        )
        await refused(secured, ConfigError, r"this node speaks TLS with other nodes, and node 1 \(n1\) does not")
        await first.stop()

    asyncio.run(test())


def test_the_feature_level_is_raised_when_all_nodes_know_a_higher_one(
    etcd: EtcdCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def start(number: int, level_max: int) -> ClusterNode:
        monkeypatch.setattr(cluster_node, "FEATURE_LEVEL_MAX", level_max)
        return await ClusterNode.start(config(etcd, "levels", tmp_path / f"n{number}", f"n{number}"))

    async def test() -> None:
        async def ask() -> str:
            return await ask_leader(operator, RAISE_LEVEL, {}, 20.0)

        await create(etcd, "levels")
        operator = connected(etcd, "levels")
        await operator.open()
        new, old = await start(1, 2), await start(2, 1)
        with pytest.raises(CommandError, match=r"node 2 \(n2, version .*\) knows no higher one; upgrade all nodes first"):
            await ask()
        await old.stop()
        with pytest.raises(CommandError, match=r"node 2 \(n2\) is away; start it, or remove it"):
            await ask()
        upgraded = await start(2, 2)
        assert "at feature level 2" in await ask()
        await upgraded.stop()
        monkeypatch.setattr(cluster_node, "FEATURE_LEVEL_MAX", 1)
        await refused(config(etcd, "levels", tmp_path / "n2", "n2"), ConfigError, "at feature level 2, and this version")
        await new.stop()
        await operator.close()

    asyncio.run(test())


def test_nodes_sign_tokens_with_one_secret_and_keep_it(etcd: EtcdCluster, tmp_path: Path) -> None:
    async def test() -> None:
        await create(etcd, "secret")
        coordination = connected(etcd, "secret")
        await coordination.open()
        paths = (tmp_path / "n1", tmp_path / "n2")
        first, second = (ClusterDirectory.open(config(etcd, "secret", path), Random(path.name), SystemClock()) for path in paths)
        shared = await first.shared_secret(coordination, Random(1))
        assert await second.shared_secret(coordination, Random(2)) == shared
        assert node_secret(tmp_path / "n2", Random(3)) == shared, "it is there if etcd loses it"
        for directory in (first, second):
            directory.close()
        await coordination.close()

    asyncio.run(test())


def test_a_single_node_becomes_the_first_of_a_cluster_with_its_topics(etcd: EtcdCluster, tmp_path: Path) -> None:
    """Its topics stay in its own storage group; new ones are in the group that the cluster makes."""
    values = [b"one", b"two"]

    async def test() -> None:
        single = await Node.start(NodeConfig(data_dir=tmp_path / "n1", kafka_port=0, http_port=None))
        await asyncio.to_thread(write, str(single.listeners["kafka"]), "old", values)
        await single.stop()
        identity = (tmp_path / "n1" / "node.json").read_text()
        for _ in range(2):  # what was interrupted at its end can be repeated
            (tmp_path / "n1" / "node.json").write_text(identity)
            coordination = connected(etcd, "grown")
            await convert(coordination, tmp_path / "n1", cluster_name="grown", kind="mirror-3", node_name="n1")
            await coordination.close()
        configs = [config(etcd, "grown", tmp_path / f"n{number}", f"n{number}") for number in (1, 2, 3)]
        nodes = [await ClusterNode.start(own) for own in configs]
        bootstrap = ",".join(f"127.0.0.1:{own.kafka_port}" for own in configs)
        assert await asyncio.to_thread(read, bootstrap, "old", len(values)) == values
        async with asyncio.timeout(WAIT_S):
            while not (made := serving_groups(nodes[0]._coordination)):  # noqa: ASYNC110 - a test that looks on
                await asyncio.sleep(0.05)
        await asyncio.to_thread(write, bootstrap, "new", values)
        assert await asyncio.to_thread(read, bootstrap, "new", len(values)) == values
        broker = nodes[0]._member.broker
        assert broker is not None
        groups = [broker.catalog.topic(name).groups for name in ("old", "new")]
        assert groups == [(), tuple(made)]
        for node in nodes:
            await node.stop()

    asyncio.run(test())


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"erasure": "mirror-3"}, "penstock cluster init --kind"),
        ({"node_id": "3"}, "the cluster gives each node its id"),
        ({"interconnect_ca": "ca.pem"}, "needs all of interconnect_ca"),
        ({"interconnect_port": "none"}, "needs a port for the other nodes"),
        ({"etcd": "10.0.0.1:2379"}, "separated by commas"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings: dict[str, str], text: str) -> None:
    with pytest.raises(BadSettingError, match=text):
        load_config({"etcd": "http://10.0.0.1:2379", **settings}, {})
