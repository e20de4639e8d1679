"""What there is under which path: the nodes that were made, and, as if they had been, Kafka's topics and groups.

A queue is a node with a topic. A topic that no queue was made for is the queue `//topics/<name>`, and a Kafka group the consumer
`//groups/<name>`; either gets a node of its own once an attribute is set on it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from random import Random
from typing import Protocol
from uuid import NAMESPACE_URL, UUID, uuid5

from penstock.broker.catalog import Catalog
from penstock.broker.consumers import OBJECT_PREFIX, Consumers
from penstock.broker.errors import LimitReachedError, TopicExistsError, UnknownTopicError
from penstock.broker.internal_topics import INTERNAL_TOPICS
from penstock.broker.namespace.errors import NodeExistsError, NoSuchNodeError, WrongNodeError
from penstock.broker.namespace.node import Kind, MountState, Node, check_path, new_id, object_id, parent_of, topic_name_of
from penstock.broker.namespace.tree import Tree
from penstock.broker.registrations import Ref
from penstock.broker.table_store import TableStore
from penstock.broker.topic import Topic
from penstock.broker.topic_config import MESSAGE_BYTES_MAX, TopicConfig
from penstock.core.clock import Clock
from penstock.core.errors import InvalidRequestError

TOPICS_FOLDER = "//topics"
GROUPS_FOLDER = "//groups"
FOLDERS = ("/", "//home", "//sys", "//tmp", TOPICS_FOLDER, GROUPS_FOLDER)
TABLE_TYPE, FOLDER_TYPE = 401, 303
NAMES_TRIED_MAX = 1000

# Rows stay until they are trimmed, and all rows of one insertion are one batch.
QUEUE_CONFIG: Mapping[str, str] = {"retention.ms": "-1", "max.message.bytes": str(MESSAGE_BYTES_MAX)}


class TopicMaker(Protocol):
    """Creates and deletes topics: the broker."""

    async def create_topic(self, name: str, partitions: int | None = None, config: TopicConfig | None = None) -> Topic:
        """A new topic."""
        ...

    async def delete_topic(self, name: str) -> None:
        """Delete a topic with its data."""
        ...


class Namespace:
    """The tree as clients see it."""

    def __init__(
        self,
        tree: Tree,
        catalog: Catalog,
        maker: TopicMaker,
        consumers: Consumers,
        *,
        tables: TableStore,
        group_names: Callable[[], Iterable[str]],
        clock: Clock,
        random: Random,
        nodes_max: int | None = None,
    ) -> None:
        self.tree = tree
        self._nodes_max = nodes_max
        self._catalog = catalog
        self._maker = maker
        self._consumers = consumers
        self._tables = tables
        self._group_names = group_names
        self._clock = clock
        self._random = random
        self._changing = asyncio.Lock()
        self._owned: tuple[int, dict[UUID, str]] = (-1, {})

    # What is there.

    def find(self, path: str) -> Node | None:
        """The node at a path; None if there is none."""
        node = self.tree.get(path)
        if node is not None:
            return node if not node.is_going and self._has_data(node) else None
        if path in FOLDERS or self.tree.children(path):
            return Node(path, object_id(FOLDER_TYPE, uuid5(NAMESPACE_URL, path).int), Kind.FOLDER)
        folder, name = parent_of(path), path.rpartition("/")[2]
        if folder == TOPICS_FOLDER:
            return self._topic_node(name)
        group = group_name(path)
        return _group_node(path) if group is not None and group in self._group_names() else None

    def consumer(self, path: str) -> Node | None:
        """The consumer at a path; None if there is none. A group need not exist: it has read nothing then."""
        node = self.find(path)
        if node is None and group_name(path) is not None:
            return _group_node(path)
        return node if node is not None and node.kind is Kind.CONSUMER else None

    def node(self, path: str) -> Node:
        """The node at a path."""
        node = self.find(path)
        if node is None:
            raise NoSuchNodeError(f"there is no node {path}; `yt list {parent_of(path)}` shows what is there")
        return node

    def children(self, path: str) -> list[str]:
        """Names of the nodes in a folder."""
        node = self.node(path)
        if node.kind is not Kind.FOLDER:
            raise WrongNodeError(f"{path} is a table and has no children")
        names = {name for name in self.tree.children(path) if self.find(_child(path, name)) is not None}
        if path == TOPICS_FOLDER:
            owned = self._owned_topics()
            names |= {topic.name for topic in self.topics() if topic.id not in owned}
        elif path == GROUPS_FOLDER:
            names |= set(self._group_names())
        elif path == "/":
            names |= {folder[2:] for folder in FOLDERS if folder != "/"}
        return sorted(names)

    def inside(self, path: str) -> list[Node]:
        """Every node that was made below a path."""
        return [node for node in self.tree.nodes() if node.path.startswith(path + "/")]

    def topics(self) -> list[Topic]:
        """The topics of all queues."""
        return [topic for topic in self._catalog.topics() if topic.name not in INTERNAL_TOPICS]

    def queues_with_attributes(self) -> list[tuple[Node, Topic]]:
        """Every queue that was given attributes, and its topic. Most topics of Kafka's clients never are."""
        nodes = [node for node in self.tree.nodes() if node.attributes and node.kind is Kind.QUEUE and not node.is_going]
        return [(node, self.topic(node)) for node in nodes if self._has_data(node)]

    def consumers(self) -> list[Node]:
        """Every consumer that was made."""
        return [node for node in self.tree.nodes() if node.kind is Kind.CONSUMER and not node.is_going]

    def offsets_name(self, group: str) -> str:
        """The name under which the offsets of a group are committed, where `group` may be the path of a consumer."""
        node = self.tree.get(group) if group.startswith("//") else None
        return group if node is None or node.kind is not Kind.CONSUMER or node.is_going else consumer_name(node)

    def topic(self, node: Node) -> Topic:
        """The topic of a queue."""
        if node.kind is not Kind.QUEUE or node.topic_id is None:
            raise WrongNodeError(f"{node.path} is not a queue: a queue is an ordered dynamic table")
        try:
            return self._catalog.topic_by_id(node.topic_id)
        except UnknownTopicError as error:
            raise NoSuchNodeError(f"the queue {node.path} was removed") from error

    def path_of(self, topic: Topic) -> str:
        """The path of the queue that a topic is."""
        return self._owned_topics().get(topic.id) or _child(TOPICS_FOLDER, topic.name)

    # What changes.

    async def create(
        self,
        path: str,
        kind: Kind,
        attributes: Mapping[str, bytes],
        *,
        partitions: int = 1,
        mounted: bool = False,
        recursive: bool = False,
        config: Mapping[str, str] | None = None,
    ) -> Node:
        """A new node; a queue can be written to when this returns. NodeExistsError if there is one."""
        check_path(path)
        async with self._changing:
            if self.find(path) is not None:
                raise NodeExistsError(f"there is a node {path} already")
            if parent_of(path) == TOPICS_FOLDER or group_name(path) is not None:
                raise WrongNodeError(
                    f"{path} is made by Kafka clients: what is below {TOPICS_FOLDER} and {GROUPS_FOLDER} is theirs"
                )
            folders = self._missing_folders(path, recursive=recursive)
            self._check_room(len(folders) + 1)
            now_ms = int(self._clock.wall() * 1000)
            state = MountState.MOUNTED if mounted else MountState.UNMOUNTED
            node = Node(path, new_id(kind, self._random), kind, now_ms, now_ms, dict(attributes), state)
            if kind is not Kind.QUEUE:
                await self.tree.change([*folders, node])
                return node
            own = TopicConfig({**QUEUE_CONFIG, **(config or {})})
            # The node first, without an id of a topic: if the topic is made and nothing more, it is found by its name, by the
            # next start or by a retry.
            begun = self.tree.get(path)
            name = None if begun is None or begun.topic_id is not None else begun.topic
            node = replace(node, topic=name or self._free_topic_name(path))
            await self.tree.change([*folders, node])
            return await self._make_topic(node, partitions, own)

    async def set_attributes(self, path: str, sets: Mapping[str, bytes], deletes: Iterable[str] = ()) -> Node:
        """Set attributes of a node and delete others, all of it or nothing."""
        async with self._changing:
            node = self.node(path)
            gone = set(deletes)
            kept = {name: value for name, value in {**node.attributes, **sets}.items() if name not in gone}
            return await self._store(replace(node, attributes=kept))

    async def put_together(self, nodes: Callable[[], list[Node]]) -> None:
        """Put nodes at their paths, all of them or none: one request to one tablet. `nodes` is called
        once no other change can come in between. NodeExistsError if a new node is at a path that is taken."""
        async with self._changing:
            wanted = nodes()
            for node in wanted:
                current = self.find(node.path)
                if current is not None and current.id != node.id:
                    raise NodeExistsError(f"there is a node {node.path} already")
            await self.tree.change(wanted)

    async def set_mount_state(self, path: str, state: MountState) -> Node:
        """Mount, unmount or freeze a table."""
        async with self._changing:
            node = self.node(path)
            if node.kind in (Kind.FOLDER, Kind.STATIC):
                raise WrongNodeError(f"{path} is not a dynamic table")
            return node if node.mount_state is state else await self._store(replace(node, mount_state=state))

    async def remove(self, path: str, *, recursive: bool = False) -> None:
        """Remove a node with its data; with `recursive` a folder with all that is in it."""
        async with self._changing:
            node = self.node(path)
            if path in FOLDERS or group_name(path) is not None:
                raise WrongNodeError(
                    f"{path} cannot be removed here: a folder is always there, a group is deleted by Kafka's tools"
                )
            inside = self.inside(path)
            if inside and not recursive:
                raise WrongNodeError(f"{path} is not empty; remove it with all that is in it by --recursive")
            stored = [child for child in (*inside, self.tree.get(path)) if child is not None]
            await self.tree.change([replace(child, is_going=True) for child in stored])
            for child in sorted(stored, key=lambda child: child.path, reverse=True):
                await self._finish_removing(child)
            if not stored:
                await self._remove_data(node)

    async def repair(self) -> None:
        """Finish what a crash interrupted: queues that were being created, nodes that were being removed."""
        async with self._changing:
            for node in self.tree.nodes():
                if node.is_going:
                    await self._finish_removing(node)
                elif node.kind is Kind.QUEUE and node.topic_id is None:
                    await self._adopt_or_drop(node)
                elif not self._has_data(node):
                    await self.tree.change([], [node.path])  # a Kafka client has deleted its topic
            for left in self._tables.tables() - {node.id for node in self.tree.nodes()}:
                await self._tables.delete(left)

    # Within.

    async def _make_topic(self, node: Node, partitions: int, config: TopicConfig) -> Node:
        assert node.topic is not None
        try:
            topic = await self._maker.create_topic(node.topic, partitions, config)
        except TopicExistsError:
            topic = self._catalog.topic(node.topic)
        except InvalidRequestError:
            await self.tree.change([], [node.path])
            raise
        node = replace(node, topic=topic.name, topic_id=topic.id)
        await self.tree.change([node])
        return node

    async def _adopt_or_drop(self, node: Node) -> None:
        """Finish a queue whose creation a crash interrupted: it exists if its topic does."""
        try:
            topic = self._catalog.topic(node.topic or "")
        except UnknownTopicError:
            await self.tree.change([], [node.path])
        else:
            await self.tree.change([replace(node, topic_id=topic.id)])

    async def _store(self, node: Node) -> Node:
        node = replace(node, changed_ms=int(self._clock.wall() * 1000))
        await self.tree.change([node])
        return node

    async def _finish_removing(self, node: Node) -> None:
        await self._remove_data(node)
        await self.tree.change([], [node.path])

    async def _remove_data(self, node: Node) -> None:
        if node.kind is Kind.QUEUE:
            try:
                if node.topic_id is not None:
                    await self._maker.delete_topic(self._catalog.topic_by_id(node.topic_id).name)
            except UnknownTopicError:
                return  # it was deleted before
        elif node.kind is Kind.STATIC:
            await self._tables.delete(node.id)
        elif node.kind is Kind.CONSUMER:
            name = consumer_name(node)
            await self._consumers.forget(name, self._consumers.positions(name))

    def _check_room(self, more: int) -> None:
        count = len(self.tree)
        if self._nodes_max is not None and count + more > self._nodes_max:
            raise LimitReachedError(
                f"cannot create {more} nodes: there are {count}, and the limit is {self._nodes_max}; remove some, or raise "
                "yt_nodes_max"
            )

    def _missing_folders(self, path: str, *, recursive: bool) -> list[Node]:
        missing: list[Node] = []
        folder = parent_of(path)
        now_ms = int(self._clock.wall() * 1000)
        while (ancestor := self.find(folder)) is None:
            if not recursive:
                raise NoSuchNodeError(f"there is no folder {folder} for {path}; make it first, or add --recursive")
            missing.append(Node(folder, new_id(Kind.FOLDER, self._random), Kind.FOLDER, now_ms, now_ms))
            folder = parent_of(folder)
        if ancestor.kind is not Kind.FOLDER:
            raise WrongNodeError(f"{folder} is a table: nothing can be made in it")
        return missing

    def _free_topic_name(self, path: str) -> str:
        wanted = topic_name_of(path)
        taken = {topic.name for topic in self._catalog.topics()}
        names = (wanted if number == 1 else f"{wanted}-{number}" for number in range(1, NAMES_TRIED_MAX))
        free = next((name for name in names if name not in taken), None)
        if free is None:
            raise NodeExistsError(f"too many topics are named like {wanted}; choose another path")
        return free

    def _topic_node(self, name: str) -> Node | None:
        try:
            topic = self._catalog.topic(name)
        except UnknownTopicError:
            return None
        if topic.id in self._owned_topics() or name in INTERNAL_TOPICS:
            return None
        return Node(
            _child(TOPICS_FOLDER, name),
            object_id(TABLE_TYPE, topic.id.int),
            Kind.QUEUE,
            mount_state=MountState.MOUNTED,
            topic=name,
            topic_id=topic.id,
        )

    def _has_data(self, node: Node) -> bool:
        """A topic may have been deleted by a Kafka client; then its queue is gone as well."""
        if node.kind is not Kind.QUEUE or node.topic_id is None:
            return node.kind is not Kind.QUEUE
        try:
            self._catalog.topic_by_id(node.topic_id)
        except UnknownTopicError:
            return False
        return True

    def _owned_topics(self) -> dict[UUID, str]:
        """Paths of queues by the topics that were made for them."""
        version, owned = self._owned
        if version != self.tree.version:
            owned = {node.topic_id: node.path for node in self.tree.nodes() if node.topic_id is not None}
            self._owned = (self.tree.version, owned)
        return owned


def consumer_name(node: Node) -> str:
    """The name under which a consumer keeps its positions."""
    return group_name(node.path) or f"{OBJECT_PREFIX}yt:{node.id}"


def group_name(path: str) -> str | None:
    """The consumer group of a path; None if the path is of something else."""
    prefix = f"{GROUPS_FOLDER}/"
    return path[len(prefix) :] or None if path.startswith(prefix) else None


def remote_queue_id(queue: Ref) -> UUID:
    """The key of a queue of another cluster in the table of committed offsets."""
    return uuid5(NAMESPACE_URL, f"yt:{queue}")


def _group_node(path: str) -> Node:
    return Node(path, object_id(TABLE_TYPE, uuid5(NAMESPACE_URL, path).int), Kind.CONSUMER, mount_state=MountState.MOUNTED)


def _child(folder: str, name: str) -> str:
    return f"//{name}" if folder == "/" else f"{folder}/{name}"
