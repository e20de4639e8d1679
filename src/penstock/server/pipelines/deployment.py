"""What is stored of a deployed pipeline.

The key of a record is the pipeline's name, its value JSON with `format` 1 and the fields of `Deployment`; contents of files are
in base64. A tombstone is a pipeline that was undeployed.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Final, Literal

import msgspec

from penstock.core.errors import CorruptionError
from penstock.server.pipelines.errors import DeploymentError

FORMAT: Final = 1
FILES_BYTES_MAX: Final = 4 << 20
FILES_MAX: Final = 200
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")

Wanted = Literal["running", "paused", "stopped", "finished"]
"""What a pipeline is to do: paused ones leave their Spark application running, stopped ones do not."""


class Deployment(msgspec.Struct, frozen=True, kw_only=True):
    """A pipeline that the node runs: its files, and how it is run. `file` is the main one of `files`; `directory` is where they
    come from; `conf` may hold secrets. `reset` is the id of the last order to start over."""

    name: str
    kind: str
    version: int
    deployed_ms: int
    deployed_by: str
    wanted: Wanted
    file: str
    files: dict[str, bytes]
    directory: str
    application: str
    master: str | None = None
    conf: dict[str, str] = msgspec.field(default_factory=dict)
    reset: str = ""
    source: str = ""
    source_topics: list[str] = msgspec.field(default_factory=list)
    target: str = ""
    target_topic: str | None = None
    dead_letter_topic: str | None = None

    def pack(self) -> bytes:
        """As it is stored."""
        return msgspec.json.encode({"format": FORMAT, **msgspec.structs.asdict(self)})


class _Stored(msgspec.Struct, frozen=True):
    format: int


def unpack_deployment(raw: bytes) -> Deployment:
    """A stored deployment; CorruptionError if it is not one, or of a later version."""
    try:
        version = msgspec.json.decode(raw, type=_Stored).format
        if version != FORMAT:
            raise CorruptionError(
                f"a deployment is stored in format {version}, and this version reads {FORMAT}; upgrade Penstock"
            )
        return msgspec.json.decode(raw, type=Deployment)
    except msgspec.MsgspecError as error:
        raise CorruptionError(f"a stored deployment cannot be read: {error}") from error


def check_files(file: str, files: dict[str, bytes]) -> None:
    """DeploymentError unless these can be the files of a pipeline: each below one directory, and not too large together."""
    for path in files:
        parts = PurePosixPath(path)
        if not path or parts.is_absolute() or ".." in parts.parts or "\0" in path or len(path) > 500:
            raise DeploymentError(f"file {path!r} is not below the directory of the pipeline's file; put it there")
    if file not in files:
        raise DeploymentError(f"file {file!r} is not among the files")
    if len(files) > FILES_MAX or sum(map(len, files.values())) > FILES_BYTES_MAX:
        raise DeploymentError(
            f"the files of a pipeline are {FILES_MAX} at most and {FILES_BYTES_MAX >> 20} MiB together; put data into a table"
        )
