"""Nodes of a cluster in the process of a test, with etcd beside them, and clients of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from penstock.blob import DYNAMIC_GROUPS_FROM, Configuration
from penstock.coordination import ClusterIdentity, Coordination, EtcdOptions, cluster_prefix, connect_etcd
from penstock.server import NodeConfig
from tests.e2e.coordination.etcd_process import EtcdCluster
from tests.ports import free_ports

WAIT_S = 60.0


def config(etcd: EtcdCluster, name: str, directory: Path, node: str = "n1", disks: int = 0) -> NodeConfig:
    """The settings of a node without HTTP; with so many disks, or one within its directory."""
    kafka, interconnect = free_ports(2)
    return NodeConfig(
        data_dir=directory,
        disks=tuple(directory / f"disk{number}" for number in range(disks)) or None,
        etcd=etcd.urls,
        cluster_name=name,
        node_name=node,
        kafka_port=kafka,
        interconnect_port=interconnect,
        http_port=None,
    )


async def create(etcd: EtcdCluster, name: str, cluster_id: str = "8f14e45f-ceea-467f-a1d2-0c1d2e3f4a5b") -> None:
    """Create a cluster."""
    coordination = connected(etcd, name)
    await coordination.create_cluster(ClusterIdentity(cluster_id=cluster_id, name=name, kind="mirror-3"))
    await coordination.close()


def connected(etcd: EtcdCluster, name: str) -> Coordination:
    """What the nodes of a cluster agree by."""
    return Coordination(connect_etcd(EtcdOptions(etcd.urls, cluster_prefix(name)), Random(1)))


def serving_groups(coordination: Coordination) -> dict[int, Configuration]:
    """The storage groups that the cluster has made and that serve, by id."""
    known = [Configuration.unpack(entry.value) for entry in coordination.groups().values()]
    return {group.group: group for group in known if group.group >= DYNAMIC_GROUPS_FROM and group.is_formed}


def write(bootstrap: str, topic: str, values: Sequence[bytes], partitions: int = 1) -> None:
    """Create a topic, and write to its first partition."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions)])[topic].result(WAIT_S)
    producer = Producer({"bootstrap.servers": bootstrap})
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(WAIT_S) == 0


def read(bootstrap: str, topic: str, count: int) -> list[bytes]:
    """The first messages of the first partition of a topic."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    values = [message.value() or b"" for message in consumer.consume(count, WAIT_S)]
    consumer.close()
    return values
