"""What can go wrong with nodes, beyond the kinds every layer has."""

from __future__ import annotations

from penstock.core.errors import InvalidRequestError


class NoSuchNodeError(InvalidRequestError):
    """There is no node at this path."""

    code = "no_such_node"


class NodeExistsError(InvalidRequestError):
    """There is a node at this path already."""

    code = "node_exists"


class WrongNodeError(InvalidRequestError):
    """The node is not of the kind that this can be asked of."""

    code = "wrong_node"
