"""Coordination of the nodes of a cluster: identity, members, leader, group configurations and owners of tablets.

`Coordination` works on a `KeyStore`, of which there are three: `MemoryStore` for a node that is alone, `SocketStore` for workers
under a supervisor (which serves a `MemoryStore` by `SocketServer`), and that of `connect_etcd` for a cluster.
"""

from penstock.coordination.coordination import ClusterExistsError, Coordination
from penstock.coordination.election import Leader, LeaderRecord, NotLeaderError
from penstock.coordination.etcd import EtcdOptions, connect_etcd
from penstock.coordination.identity import ClusterIdentity, ClusterMark, NoClusterError, WrongClusterError
from penstock.coordination.key_layout import check_cluster_name, cluster_prefix
from penstock.coordination.key_mirror import KeyChange
from penstock.coordination.key_table import KeyTable
from penstock.coordination.members import DuplicateMemberError, MemberRecord
from penstock.coordination.memory_store import MemoryStore
from penstock.coordination.node_ids import NodeNameTakenError, NodeRecord
from penstock.coordination.ownership import SYSTEM_TABLET_MAX, TABLET_MAX, OwnerMap, TabletRange
from penstock.coordination.port import (
    Change,
    CommitResult,
    CompactedError,
    Compare,
    CoordinationRefusedError,
    CoordinationUnavailableError,
    Delete,
    Entry,
    Event,
    KeyStore,
    Lease,
    Outcome,
    Position,
    Put,
    RolledBackError,
    Snapshot,
)
from penstock.coordination.requests import OperatorRequest, decode_request
from penstock.coordination.seeding import end_member, seed_store
from penstock.coordination.socket_server import SocketServer, is_abandoned
from penstock.coordination.socket_store import SocketStore
from penstock.coordination.status import CoordinationStatus, StoreState

__all__ = [
    "SYSTEM_TABLET_MAX",
    "TABLET_MAX",
    "Change",
    "ClusterExistsError",
    "ClusterIdentity",
    "ClusterMark",
    "CommitResult",
    "CompactedError",
    "Compare",
    "Coordination",
    "CoordinationRefusedError",
    "CoordinationStatus",
    "CoordinationUnavailableError",
    "Delete",
    "DuplicateMemberError",
    "Entry",
    "EtcdOptions",
    "Event",
    "KeyChange",
    "KeyStore",
    "KeyTable",
    "Leader",
    "LeaderRecord",
    "Lease",
    "MemberRecord",
    "MemoryStore",
    "NoClusterError",
    "NodeNameTakenError",
    "NodeRecord",
    "NotLeaderError",
    "OperatorRequest",
    "Outcome",
    "OwnerMap",
    "Position",
    "Put",
    "RolledBackError",
    "Snapshot",
    "SocketServer",
    "SocketStore",
    "StoreState",
    "TabletRange",
    "WrongClusterError",
    "check_cluster_name",
    "cluster_prefix",
    "connect_etcd",
    "decode_request",
    "end_member",
    "is_abandoned",
    "seed_store",
]
