"""The tree of nodes that were made, in a tablet of its own.

"n" | path      the node (see node.py)
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.broker.namespace.node import Node, parent_of
from penstock.broker.system_tablet import TableTablet
from penstock.tablet import Command, DeleteRange, Request, Write


class Tree:
    """Nodes by path. Every change is durable before it is seen."""

    def __init__(self, tablet: TableTablet) -> None:
        self._tablet = tablet
        self._nodes: dict[str, Node] = {}
        self._children: dict[str, dict[str, None]] = {}
        self.version = 0  # another one after every change
        self._load(tablet)

    async def reload(self, tablet: TableTablet) -> None:
        """The tablet was started again: what failed may have been done."""
        self._nodes.clear()
        self._children.clear()
        self._load(tablet)

    def get(self, path: str) -> Node | None:
        """The node at a path; None if none was made there."""
        return self._nodes.get(path)

    def children(self, path: str) -> list[str]:
        """Names of the nodes in a folder."""
        return list(self._children.get(path, ()))

    def __len__(self) -> int:
        return len(self._nodes)

    def nodes(self) -> list[Node]:
        """Every node."""
        return list(self._nodes.values())

    async def change(self, puts: Iterable[Node], removes: Iterable[str] = ()) -> None:
        """Put nodes at their paths and take others away, all of it or nothing."""
        put, gone = list(puts), list(removes)
        commands: list[Command] = [Write(_key(node.path), b"", head=node.pack()) for node in put]
        commands += (DeleteRange(_key(path), _key(path) + b"\0") for path in gone)
        if not commands:
            return
        await self._tablet.execute(Request(tuple(commands), makes_room=not put))
        for node in put:
            self._take(node)
        for path in gone:
            if self._nodes.pop(path, None) is not None:
                self._children.get(parent_of(path), {}).pop(path.rpartition("/")[2], None)
        self.version += 1

    def _load(self, tablet: TableTablet) -> None:
        for key in tablet.keys(b"n", b"o"):
            self._take(Node.unpack(tablet.head(key) or b""))
        self.version += 1

    def _take(self, node: Node) -> None:
        self._nodes[node.path] = node
        self._children.setdefault(parent_of(node.path), {})[node.name] = None


def _key(path: str) -> bytes:
    return b"n" + path.encode()
