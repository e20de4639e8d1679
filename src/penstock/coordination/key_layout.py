"""Which key holds what. All keys of a cluster lie below one prefix of the store, `/penstock/CLUSTER NAME/`.

    identity            cluster id, kind, feature level             created once
    leader              who leads                                   under the leader's lease
    nodes/NODE          the name and data directory that have an id created once, kept for good
    members/NODE        a running node: name, addresses, rack       under its lease
    groups/GROUP        the configuration of a storage group        changed by compare-and-swap
    owners/FIRST        tablets FIRST to LAST are owned by a node   changed by the leader
    kept/TABLET         the node that an operator has moved it to   changed by the leader, for an operator
    started             there once a broker has run                 created once, by the leader
    maintenance         there while nothing is to be moved          written by the leader, for an operator
    secret              what nodes sign tokens with                 created once
    requests/ID         what an operator asks the leader to do      created by a command, answered by the leader

Numbers are 16 hexadecimal digits, so that keys sort as numbers do.
"""

from __future__ import annotations

import re
from typing import Final

from penstock.core.errors import InvalidRequestError

IDENTITY: Final = "identity"
LEADER: Final = "leader"
NODES: Final = "nodes/"
MEMBERS: Final = "members/"
GROUPS: Final = "groups/"
OWNERS: Final = "owners/"
KEPT: Final = "kept/"
STARTED: Final = "started"
SECRET: Final = "secret"
MAINTENANCE: Final = "maintenance"
REQUESTS: Final = "requests/"

_CLUSTER_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


def cluster_prefix(name: str) -> str:
    """The prefix of all keys of a cluster in a store that others use as well."""
    check_cluster_name(name)
    return f"/penstock/{name}/"


def check_cluster_name(name: str) -> None:
    """InvalidRequestError unless the name can be part of a key."""
    if not _CLUSTER_NAME.fullmatch(name):
        raise InvalidRequestError(
            f"{name!r} cannot be the name of a cluster: use 1 to 63 letters, digits, dots, dashes and underscores,"
            " beginning with a letter or digit"
        )


def node_key(node_id: int) -> str:
    """The key of a node that has an id, whether it runs or not."""
    return NODES + _number(node_id)


def member_key(node_id: int) -> str:
    """The key of a running node."""
    return MEMBERS + _number(node_id)


def group_key(group_id: int) -> str:
    """The key of a storage group's configuration."""
    return GROUPS + _number(group_id)


def owner_key(first_tablet: int) -> str:
    """The key of a range of tablets."""
    return OWNERS + _number(first_tablet)


def kept_key(tablet_id: int) -> str:
    """The key of a tablet that an operator has moved."""
    return KEPT + _number(tablet_id)


def number_in(key: str) -> int:
    """The number that a key ends with."""
    return int(key.rpartition("/")[2], 16)


def _number(value: int) -> str:
    if not 0 <= value < 1 << 64:
        raise InvalidRequestError(f"{value} is not a number of 64 bits")
    return f"{value:016x}"
