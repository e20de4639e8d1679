"""What a cluster is, what a node remembers of it, and whether a store is the one that the node belongs to. No I/O."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from penstock.coordination.port import Entry, Position, RolledBackError
from penstock.core.errors import ConfigError, CorruptionError


class NoClusterError(ConfigError):
    """The store holds no cluster of this name."""

    code = "no_cluster"


class WrongClusterError(ConfigError):
    """The store holds another cluster than the one that this node belongs to."""

    code = "wrong_cluster"


class ClusterIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """What `penstock cluster init` decides once. `recoveries` counts how often the store was rebuilt or restored on purpose; the
    first storage group waits for `nodes_expected` nodes."""

    cluster_id: str
    name: str
    kind: str
    feature_level: int = 1
    recoveries: int = 0
    nodes_expected: int = 0


@dataclass(frozen=True, slots=True)
class ClusterMark:
    """What a node keeps on its disks of the store it last saw, to recognize it again."""

    cluster_id: str
    recoveries: int
    position: Position


def encode_identity(identity: ClusterIdentity) -> bytes:
    """The identity as it is stored."""
    return msgspec.json.encode(identity)


def decode_identity(entry: Entry) -> ClusterIdentity:
    """The identity as it was stored; CorruptionError if it is not one."""
    try:
        return msgspec.json.decode(entry.value, type=ClusterIdentity)
    except msgspec.DecodeError as error:
        raise CorruptionError(f"the key {entry.key} does not hold the identity of a cluster: {error}") from error


def check_identity(identity: ClusterIdentity | None, position: Position, mark: ClusterMark | None) -> ClusterIdentity:
    """Check that a store is the one a node belongs to: not empty, not another's, not older than what the node saw."""
    if identity is None:
        if mark is None:
            raise NoClusterError(
                "the store holds no cluster of this name; create it with `penstock cluster init`, or check the name"
            )
        raise NoClusterError(
            f"the store holds no cluster of this name, and this node belongs to cluster {mark.cluster_id}:"
            " is this the right store? If its data is lost, rebuild it from the disks with `penstock cluster recover`"
        )
    if mark is None:
        return identity
    if identity.cluster_id != mark.cluster_id:
        raise WrongClusterError(
            f"the store holds cluster {identity.cluster_id}, and this node belongs to cluster {mark.cluster_id};"
            " name the store of that cluster, or another data directory"
        )
    if identity.recoveries > mark.recoveries:
        return identity
    if identity.recoveries < mark.recoveries:
        raise RolledBackError(
            f"the store was rebuilt {identity.recoveries} times and this node saw it rebuilt {mark.recoveries} times:"
            f" it was restored from an old copy. {_ADVICE}"
        )
    check_position(position, mark.position)
    return identity


def check_position(position: Position, floor: Position) -> None:
    """RolledBackError if the store is not at least where it was seen before."""
    if position.store_id != floor.store_id:
        raise RolledBackError(
            f"the store has id {position.store_id} and had id {floor.store_id}: it was replaced or restored. {_ADVICE}"
        )
    if position.revision < floor.revision:
        raise RolledBackError(
            f"the store is at revision {position.revision} and was at {floor.revision} before:"
            f" it was restored from an old copy. {_ADVICE}"
        )


_ADVICE = (
    "Nothing is changed in it until it is back as it was, or `penstock cluster recover` has brought it up to date from the disks"
)
