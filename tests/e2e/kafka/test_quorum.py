"""Where the metadata of the cluster is kept, and in which directory the partitions are: here and nowhere else."""

from __future__ import annotations

from penstock.kafka.protocol import errors, keys
from penstock.kafka.protocol.cluster import DescribeLogDirsRequest, DescribeLogDirsResponse
from penstock.kafka.protocol.quorum import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
    DescribedQuorumPartition,
    DescribedQuorumTopic,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    QuorumPartition,
)
from tests.e2e.kafka.gateway_cluster import NODES
from tests.e2e.kafka.raw_client import RawClient
from tests.e2e.kafka.running_gateway import NODE_ID


def test_this_node_is_the_quorum_of_the_metadata(client: RawClient) -> None:
    found = _quorum_of(client, "__cluster_metadata")
    assert (found.error_code, found.leader_id) == (errors.NONE, NODE_ID)
    assert found.leader_epoch > 0
    assert found.high_watermark >= 0
    assert [voter.replica_id for voter in found.current_voters] == [NODE_ID]


def test_no_other_topic_has_a_quorum(client: RawClient, topic: str) -> None:
    assert _quorum_of(client, topic).error_code == errors.UNKNOWN_TOPIC_OR_PARTITION


def test_a_replica_can_stay_in_its_directory_and_go_to_no_other(client: RawClient, topic: str) -> None:
    described = client.call(keys.DESCRIBE_LOG_DIRS, 4, DescribeLogDirsRequest(topics=[]), DescribeLogDirsResponse)
    own = described.results[0].log_dir
    assert _move(client, own, topic) == errors.NONE
    assert _move(client, own + "/elsewhere", topic) == errors.LOG_DIR_NOT_FOUND
    assert _move(client, own, "no-such-topic") == errors.UNKNOWN_TOPIC_OR_PARTITION


def _quorum_of(client: RawClient, topic: str) -> QuorumPartition:
    asked = DescribedQuorumTopic(topic_name=topic, partitions=[DescribedQuorumPartition(partition_index=0)])
    response = client.call(keys.DESCRIBE_QUORUM, 2, DescribeQuorumRequest(topics=[asked]), DescribeQuorumResponse)
    assert response.error_code == errors.NONE
    assert [node.node_id for node in response.nodes] == list(range(1, NODES + 1))
    return response.topics[0].partitions[0]


def _move(client: RawClient, path: str, topic: str) -> int:
    asked = AlterReplicaLogDir(path=path, topics=[AlterReplicaLogDirTopic(name=topic, partitions=[0])])
    request = AlterReplicaLogDirsRequest(dirs=[asked])
    response = client.call(keys.ALTER_REPLICA_LOG_DIRS, 2, request, AlterReplicaLogDirsResponse)
    return response.results[0].partitions[0].error_code
