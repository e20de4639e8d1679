"""Ids of nodes: given once to a data directory, kept over restarts, never given again. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from penstock.coordination.key_layout import node_key, number_in
from penstock.coordination.port import Compare, Entry, Put
from penstock.core.errors import ConfigError, CorruptionError


class NodeNameTakenError(ConfigError):
    """Another node has this name, or a node of this directory was removed; the message says what to do."""

    code = "node_name_taken"


class NodeRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A node that was ever part of the cluster. A removed one keeps its id, so that no other gets it."""

    name: str
    directory_id: str
    is_removed: bool = False
    is_draining: bool = False
    """Whether its tablets are to move to other nodes, and none to it."""
    draining_disks: frozenset[str] = frozenset()
    """The disks whose VDisks are to move to other disks, and that get none."""


@dataclass(frozen=True, slots=True)
class NodeClaim:
    """The id of a node. `change` is the transaction that gives it; None if it has the id already."""

    node_id: int
    change: tuple[Compare, Put] | None = None


def decode_node(entry: Entry) -> NodeRecord:
    """A node as it was stored."""
    try:
        return msgspec.json.decode(entry.value, type=NodeRecord)
    except msgspec.DecodeError as error:
        raise CorruptionError(f"the key {entry.key} does not hold a node: {error}") from error


def claim_node_id(
    entries: Sequence[Entry], name: str, directory_id: str, *, replaces: bool, known_id: int = 0, above: int = 0
) -> NodeClaim:
    """The id for a data directory: the one it has, that of the node it replaces, or a new one. `known_id` is the one that a
    directory had in a store that was rebuilt since; a new one is higher than `above`."""
    named: Entry | None = None
    for entry in entries:
        node = decode_node(entry)
        if node.directory_id == directory_id:
            return _claim_known(entry, node, name)
        if node.name == name and not node.is_removed:
            named = entry
    mine = NodeRecord(name=name, directory_id=directory_id)
    if named is None:
        node_id = known_id or max((above, *(number_in(entry.key) for entry in entries))) + 1
        return NodeClaim(node_id, (Compare(node_key(node_id), 0), _put(node_id, mine)))
    node_id = number_in(named.key)
    if not replaces:
        raise NodeNameTakenError(
            f"node {node_id} is named {name} and has another data directory: choose another name,"
            " or say that this node replaces it if that directory is lost"
        )
    return NodeClaim(node_id, (Compare(named.key, named.revision), _put(node_id, mine)))


def removal_of(entry: Entry) -> tuple[Compare, Put]:
    """The transaction that removes a node for good."""
    removed = msgspec.structs.replace(decode_node(entry), is_removed=True)
    return Compare(entry.key, entry.revision), _put(number_in(entry.key), removed)


def draining_of(entry: Entry, *, is_draining: bool, disk: str | None = None) -> tuple[Compare, Put] | None:
    """The transaction that lets a node, or one of its disks, drain, or ends that; None if it is so already."""
    node = decode_node(entry)
    if disk is None:
        changed = msgspec.structs.replace(node, is_draining=is_draining)
    else:
        disks = node.draining_disks | {disk} if is_draining else node.draining_disks - {disk}
        changed = msgspec.structs.replace(node, draining_disks=disks)
    if changed == node:
        return None
    return Compare(entry.key, entry.revision), _put(number_in(entry.key), changed)


def _claim_known(entry: Entry, node: NodeRecord, name: str) -> NodeClaim:
    node_id = number_in(entry.key)
    if node.is_removed:
        raise NodeNameTakenError(f"node {node_id} of this data directory was removed from the cluster; use an empty directory")
    if node.name != name:
        raise NodeNameTakenError(f"this data directory is that of node {node_id}, named {node.name}, and not of {name}")
    return NodeClaim(node_id)


def _put(node_id: int, node: NodeRecord) -> Put:
    return Put(node_key(node_id), msgspec.json.encode(node))
