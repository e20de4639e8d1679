"""The namespace: queues, consumers and producers as nodes of one tree, with attributes (seed 002)."""

from penstock.broker.namespace.errors import NodeExistsError, NoSuchNodeError, WrongNodeError
from penstock.broker.namespace.namespace import GROUPS_FOLDER, TOPICS_FOLDER, Namespace, consumer_name, group_name
from penstock.broker.namespace.node import Kind, MountState, Node, object_id, parent_of, topic_name_of
from penstock.broker.namespace.tree import Tree

__all__ = [
    "GROUPS_FOLDER",
    "TOPICS_FOLDER",
    "Kind",
    "MountState",
    "Namespace",
    "NoSuchNodeError",
    "Node",
    "NodeExistsError",
    "Tree",
    "WrongNodeError",
    "consumer_name",
    "group_name",
    "object_id",
    "parent_of",
    "topic_name_of",
]
