"""Finds nodes that the caller may see. A node that it may not describe is answered like a missing one."""

from __future__ import annotations

from penstock.broker import Operation, ResourceKind
from penstock.broker.namespace import GROUPS_FOLDER, TOPICS_FOLDER, Kind, Node, NoSuchNodeError, parent_of, topic_name_of
from penstock.broker.registrations import Ref
from penstock.gateway.yt.call import Call
from penstock.gateway.yt.errors import GENERIC, YtError
from penstock.gateway.yt.paths import Path
from penstock.gateway.yt.permissions import group_of, is_peer_itself, may, may_node


def node_at(call: Call, path: Path) -> Node:
    """A node of this cluster. NoSuchNodeError if there is none that the caller may see."""
    try:
        node = call.cluster.node(path)
    except NoSuchNodeError:
        node = None
    if node is None or not may_see(call, node):
        raise no_such_node(call, path.node)
    return node


def table_at(call: Call, path: Path, kind: Kind) -> Node:
    """A node that must be a table of one kind."""
    node = node_at(call, path)
    if node.kind is not kind:
        raise YtError(GENERIC, f"{path.node} is not a {kind.value}")
    return node


def mounted_at(call: Call, path: Path, kind: Kind, *, writes: bool = False) -> Node:
    """A table that is mounted for reading, and with `writes` for writing."""
    node = table_at(call, path, kind)
    call.cluster.check_mounted(node, writes=writes)
    return node


def consumer_at(call: Call, path: str) -> Node:
    """A consumer of this cluster. Every group name is a consumer, even before the group exists."""
    node = call.cluster.broker.namespace.consumer(path)
    if node is None:
        return table_at(call, Path(path, None, None), Kind.CONSUMER)
    if not may_see(call, node):
        raise no_such_node(call, path)
    return node


def children_of(call: Call, folder: Node) -> list[str]:
    """Names of the nodes in a folder that the caller may see."""
    namespace = call.cluster.broker.namespace
    names = namespace.children(folder.path)
    if is_peer_itself(call):
        return names
    kind = {TOPICS_FOLDER: ResourceKind.TOPIC, GROUPS_FOLDER: ResourceKind.GROUP}.get(folder.path)
    if kind is not None:
        return [name for name in names if may(call, Operation.DESCRIBE, kind, name)]
    children = [(name, namespace.find(f"{folder.path.rstrip('/') or '/'}/{name}")) for name in names]
    return [name for name, node in children if node is not None and may_node(call, Operation.DESCRIBE, node)]


def may_see(call: Call, node: Node) -> bool:
    """Whether the caller may know of a node."""
    return may_node(call, Operation.DESCRIBE, node) or is_peer_itself(call)


def may_use_ref(call: Call, operation: Operation, ref: Ref, kind: Kind) -> bool:
    """Whether the caller may use an object of this cluster, which may be gone."""
    node = call.cluster.broker.namespace.find(ref.path)
    if node is not None:
        return may_node(call, operation, node)
    if kind is Kind.QUEUE:
        is_topic = parent_of(ref.path) == TOPICS_FOLDER
        name = ref.path.rpartition("/")[2] if is_topic else topic_name_of(ref.path)
        return may(call, operation, ResourceKind.TOPIC, name)
    return may(call, operation, ResourceKind.GROUP, group_of(ref.path))


def no_such_node(call: Call, path: str) -> NoSuchNodeError:
    """The error for a node that is missing or hidden from the caller; both look alike."""
    who = "" if call.cluster.broker.access is None else f' that user "{call.user}" may see'
    if path.startswith("#"):
        return NoSuchNodeError(f"there is no object {path}{who}")
    return NoSuchNodeError(f"there is no node {path}{who}; `yt list {parent_of(path)}` shows what is there")
