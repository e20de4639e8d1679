"""The first frame each way: who the nodes are, and whether they fit together.

The body of a HELLO, little-endian; a later version may add bytes behind it, which are skipped:

      0       4             6             8           10          12     13     16           32        36
     | magic | version min | version max | level min | level max | role | zero | cluster id | node id | wanted node id
     | 4     | 2           | 2           | 2         | 2         | 1    | 3    | 16         | 4       | 4
      40            48        56
     | incarnation | session | wall_ms
     | 8           | 8       | 8

    magic        "PSIC"
    version      of the frames that a node speaks; both use the highest that is common
    level        the feature levels of the cluster that a node can be part of; the same
    role         0: a connection for calls; 1: one for heartbeats
    incarnation  of the node's process: each start has a higher one than the last
    session      chosen by the dialer, the same on both connections of a link
    wall_ms      the node's wall clock; nodes whose clocks are too far apart refuse each other
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from struct import Struct
from typing import Final

from penstock.core.clock import Clock
from penstock.interconnect.errors import PeerRefusedError, ProtocolError, RefusalReason
from penstock.interconnect.status import Buffer

MAGIC: Final = b"PSIC"
VERSION_MIN: Final = 1
VERSION_MAX: Final = 1
HELLO_BYTES: Final = 64
HELLO_BYTES_MAX: Final = 512  # of a hello of a later version, or of the text of a refusal

_HELLO: Final = Struct("<4sHHHHB3x16sIIQQQ")


class Role(IntEnum):
    """What a connection is for."""

    CALLS = 0
    HEARTBEAT = 1


@dataclass(frozen=True, slots=True)
class NodeIdentity:
    """A node as its peers know it."""

    cluster_id: bytes  # 16
    node_id: int
    incarnation: int
    level_min: int = 1
    level_max: int = 1

    def __post_init__(self) -> None:
        if len(self.cluster_id) != 16:
            raise ValueError(f"a cluster id has 16 bytes, not {len(self.cluster_id)}")
        if not 0 < self.node_id < 1 << 32:
            raise ValueError(f"a node id is 1 to {(1 << 32) - 1}, not {self.node_id}")


@dataclass(frozen=True, slots=True)
class Hello:
    """What a node says of itself. `wanted_node_id` is the node that it means to talk to, 0 in an answer."""

    identity: NodeIdentity
    role: Role
    session: int
    wall_ms: int
    wanted_node_id: int = 0
    version_min: int = VERSION_MIN
    version_max: int = VERSION_MAX

    def pack(self) -> bytes:
        """The body of the frame."""
        identity = self.identity
        return _HELLO.pack(
            MAGIC,
            self.version_min,
            self.version_max,
            identity.level_min,
            identity.level_max,
            self.role,
            identity.cluster_id,
            identity.node_id,
            self.wanted_node_id,
            identity.incarnation,
            self.session,
            self.wall_ms,
        )

    @classmethod
    def unpack(cls, body: Buffer) -> Hello:
        """Raises ProtocolError if it is not a hello."""
        if len(body) < HELLO_BYTES:
            raise ProtocolError(f"a hello of {len(body)} bytes; it has at least {HELLO_BYTES}")
        (magic, version_min, version_max, level_min, level_max, role, cluster, node, wanted, incarnation, session, wall_ms) = (
            _HELLO.unpack_from(body)
        )
        if magic != MAGIC or role not in (Role.CALLS, Role.HEARTBEAT) or not node:
            raise ProtocolError("a hello without the right magic, role or node id")
        identity = NodeIdentity(cluster, node, incarnation, level_min, level_max)
        return cls(identity, Role(role), session, wall_ms, wanted, version_min, version_max)


@dataclass(frozen=True, slots=True)
class Peer:
    """The other node of a connection, and what was agreed with it."""

    identity: NodeIdentity
    role: Role
    session: int
    version: int
    level: int
    clock_ahead_s: float  # of the peer's wall clock to ours, its way here included


class Admission:
    """Decides whether a node may be a peer. It remembers the newest incarnation of each node, so that of two processes with the
    same node id the one that started first is refused."""

    def __init__(self, own: NodeIdentity, clock: Clock, clock_skew_max_s: float) -> None:
        self.own = own
        self._clock = clock
        self._skew_max_s = clock_skew_max_s
        self._incarnations: dict[int, int] = {}

    def hello(self, role: Role, session: int, wanted_node_id: int = 0) -> Hello:
        """What this node says of itself."""
        return Hello(self.own, role, session, int(self._clock.wall() * 1000), wanted_node_id)

    def admit(self, hello: Hello, *, expected_node_id: int = 0) -> Peer:
        """Raises PeerRefusedError for a node that is not the right one, or not of this cluster."""
        own, other = self.own, hello.identity
        if other.cluster_id != own.cluster_id:
            raise _refused(
                RefusalReason.WRONG_CLUSTER,
                f"node {other.node_id} and node {own.node_id} are of different clusters: one of the two has the address, the "
                "data directory or the coordination service of another cluster",
            )
        if other.node_id == own.node_id:
            raise _refused(
                RefusalReason.OWN_ID,
                f"both are node {own.node_id}: the address is that of the node itself, or two nodes run with the same id; "
                "give one of them a data directory of its own",
            )
        self._check_wanted(hello, expected_node_id)
        newest = self._incarnations.get(other.node_id, 0)
        if other.incarnation < newest:
            raise _refused(
                RefusalReason.STALE_INCARNATION,
                f"node {other.node_id} has been started again since: another process with this node id is newer (incarnation "
                f"{newest}, this one is {other.incarnation}); stop one of them",
            )
        version = _agreed(
            RefusalReason.VERSION,
            f"versions of the interconnect of nodes {other.node_id} and {own.node_id}",
            (hello.version_min, hello.version_max),
            (VERSION_MIN, VERSION_MAX),
        )
        level = _agreed(
            RefusalReason.FEATURE_LEVEL,
            f"feature levels of nodes {other.node_id} and {own.node_id}",
            (other.level_min, other.level_max),
            (own.level_min, own.level_max),
        )
        ahead_s = hello.wall_ms / 1000 - self._clock.wall()
        if abs(ahead_s) >= self._skew_max_s:
            raise _refused(
                RefusalReason.CLOCK,
                f"the clocks of nodes {other.node_id} and {own.node_id} are {abs(ahead_s):.0f} s apart; less than "
                f"{self._skew_max_s:g} s is allowed: have both follow the same time servers",
            )
        self._incarnations[other.node_id] = other.incarnation
        return Peer(other, hello.role, hello.session, version, level, ahead_s)

    def _check_wanted(self, hello: Hello, expected_node_id: int) -> None:
        own, other = self.own, hello.identity
        for wanted, there in ((hello.wanted_node_id, own.node_id), (expected_node_id, other.node_id)):
            if wanted and wanted != there:
                raise _refused(
                    RefusalReason.WRONG_NODE, f"the address of node {wanted} is that of node {there}; correct the address of one"
                )


def _agreed(reason: RefusalReason, what: str, theirs: tuple[int, int], ours: tuple[int, int]) -> int:
    highest = min(theirs[1], ours[1])
    if highest < max(theirs[0], ours[0]):
        raise _refused(
            reason,
            f"the {what} have none in common: {theirs[0]} to {theirs[1]} and {ours[0]} to {ours[1]}; upgrade the older one",
        )
    return highest


def _refused(reason: RefusalReason, message: str) -> PeerRefusedError:
    return PeerRefusedError(reason, message)
