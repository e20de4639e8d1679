"""Paths: a node on some cluster, and optionally one of its attributes or a part of that."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from yt.yson import YsonError, YsonType

from penstock.broker.registrations import Ref
from penstock.gateway.yt.errors import GENERIC, YtError


class Path(NamedTuple):
    """A node, or with `attribute` one of its attributes by the keys that lead to it; () is all attributes. `rich` holds the
    attributes of the path itself, such as columns and row ranges."""

    node: str
    attribute: tuple[str, ...] | None
    cluster: str | None
    rich: Mapping[str, Any] = {}

    def ref(self, here: str) -> Ref:
        """The node with its cluster, by default this one."""
        if self.attribute is not None:
            raise YtError(GENERIC, f"{self.node}/@… is an attribute; use a path to a table")
        return Ref(self.cluster or here, self.node)


def parse_path(parameter: object, name: str = "path") -> Path:
    """Parse a path parameter."""
    from yt.ypath import parse_ypath

    if parameter is None:
        raise YtError(GENERIC, f'missing required parameter "{name}"')
    if isinstance(parameter, bytes):
        parameter = parameter.decode(errors="replace")
    if not isinstance(parameter, str):
        raise YtError(GENERIC, f"{name} must be a path, such as //tmp/queue, not {type(parameter).__name__}")
    attributes: dict[str, Any] = dict(parameter.attributes) if isinstance(parameter, YsonType) else {}
    text = str(parameter)
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
    node, at, keys = text.partition("/@")
    node = node.removesuffix("&").rstrip("/") or "/"
    if not node.startswith(("//", "#")) and node != "/":
        raise YtError(GENERIC, f"{text!r} is not a path: a path begins with //, or with # and an object id")
    if not at:
        return node, None
    return node, tuple(key for key in keys.split("/") if key)
