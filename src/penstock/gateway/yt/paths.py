"""Paths as clients give them: a node on some cluster, and perhaps an attribute of it or a part of that."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from yt.yson import YsonError, YsonType

from penstock.broker.registrations import Ref
from penstock.gateway.yt.errors import GENERIC, YtError


class Path(NamedTuple):
    """A node, or with `attribute` one of its attributes by the keys that lead to it; () is all of them. `rich` is what else the
    path says, such as columns and ranges of rows."""

    node: str
    attribute: tuple[str, ...] | None
    cluster: str | None
    rich: Mapping[str, Any] = {}

    def ref(self, here: str) -> Ref:
        """The node on its cluster; without one it is on this."""
        if self.attribute is not None:
            raise YtError(GENERIC, f"{self.node}/@… is an attribute; a path to a table is needed")
        return Ref(self.cluster or here, self.node)


def path_of(given: object, name: str = "path") -> Path:
    """The path in a parameter."""
    from yt.ypath import parse_ypath

    if given is None:
        raise YtError(GENERIC, f'missing required parameter "{name}"')
    if isinstance(given, bytes):
        given = given.decode(errors="replace")
    if not isinstance(given, str):
        raise YtError(GENERIC, f"{name} is a path, such as //tmp/queue, not {type(given).__name__}")
    attributes: dict[str, Any] = dict(given.attributes) if isinstance(given, YsonType) else {}
    text = str(given)
    if text.startswith("<"):
        try:
            rich = parse_ypath(text)
        except (YsonError, ValueError) as error:
            raise YtError(GENERIC, f"{name} {text!r} is not a path: {error}") from error
        attributes |= rich.attributes
        text = str(rich)
    cluster = attributes.get("cluster")
    text, keys = _split(text)
    return Path(text, keys, None if cluster is None else str(cluster), attributes)


def _split(text: str) -> tuple[str, tuple[str, ...] | None]:
    node, at, rest = text.partition("/@")
    node = node.removesuffix("&").rstrip("/") or "/"
    if not node.startswith(("//", "#")) and node != "/":
        raise YtError(GENERIC, f"{text!r} is not a path: it begins with //, or with # and an object id")
    if not at:
        return node, None
    return node, tuple(key for key in rest.split("/") if key)
