"""The order that the supervisor sends to a new worker, as one line of JSON on its standard input. It may contain passwords, so it
is neither an argument nor in the environment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from penstock.server.config import NodeConfig


class WorkerOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Which worker to be. `lock` is the inherited descriptor of the lock of its data directory; `data_dir` is the directory of
    all; `groups` are the storage groups of all workers by their node ids."""

    worker: int
    node_id: int
    config: NodeConfig
    lock: int
    data_dir: str
    groups: dict[int, int]

    @property
    def group(self) -> int:
        """The storage group of this worker."""
        return self.groups[self.node_id]

    def encode(self) -> bytes:
        """The line that `decode` reads."""
        return msgspec.json.encode(self, enc_hook=_plain) + b"\n"

    @classmethod
    def decode(cls, line: bytes) -> WorkerOrder:
        """The order of a line."""
        return msgspec.json.decode(line, type=cls, dec_hook=_typed)


def _plain(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"{type(value)} has no form in JSON")


def _typed(kind: type, value: Any) -> Any:
    if kind is Path:
        return Path(value)
    raise TypeError(f"{kind} has no form in JSON")
