"""The log of a table of plain Parquet files: one entry per commit, created only if its number is free.

    LOCATION/
        _penstock/log/00000000000000000000.json   the initial columns and partitions
        _penstock/log/00000000000000000001.json   the first commit, …
        _penstock/staged/NAME                     files that are not published yet
        day=2026-11-15/NAME.parquet               what readers see

    entry   first line  {"magic": "penstock-table", "version": 1, "bytes": N, "crc32c": C}
            the rest    N bytes of JSON:
                        number      of this entry
                        schema      columns, as Arrow writes them, in base 64
                        cuts        how the table is partitioned
                        progress    of every pipeline that writes here, by its name
                        added       files that this commit put in: path, staged, rows, size, values
                        removed     paths that it took out
                        files       all files of the table; in every 32nd entry, so that few must be read

The entry is the commit. After it, staged files are moved to where readers see them, and removed files are deleted; if a crash
interrupts that, the next process that opens the table finishes it. An entry is written only when the one before it is complete.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import crc32c
import pyarrow as pa

from penstock.spark.tables.errors import TableLogError
from penstock.spark.tables.files import FileStore
from penstock.spark.tables.progress import Progress
from penstock.spark.tables.task_writer import DataFile

LOG: Final = "_penstock/log/"
MAGIC: Final = "penstock-table"
VERSION: Final = 1
WHOLE_EVERY: Final = 32


@dataclass(frozen=True)
class LogEntry:
    """One commit."""

    number: int
    schema: pa.Schema
    cuts: tuple[str, ...]
    progress: Mapping[str, Progress] = field(default_factory=dict)
    added: tuple[DataFile, ...] = ()
    removed: tuple[str, ...] = ()
    files: tuple[DataFile, ...] | None = None

    def to_bytes(self) -> bytes:
        """The serialized entry."""
        body = {
            "number": self.number,
            "schema": base64.b64encode(self.schema.serialize()).decode(),
            "cuts": self.cuts,
            "progress": {name: progress.to_json() for name, progress in self.progress.items()},
            "added": [_file_to_json(file) for file in self.added],
            "removed": self.removed,
            "files": None if self.files is None else [_file_to_json(file) for file in self.files],
        }
        text = json.dumps(body).encode()
        head = {"magic": MAGIC, "version": VERSION, "bytes": len(text), "crc32c": crc32c.crc32c(text)}
        return json.dumps(head).encode() + b"\n" + text

    @classmethod
    def from_bytes(cls, data: bytes, path: str) -> LogEntry:
        """Parse an entry. Raises TableLogError if it is damaged."""
        first, _, text = data.partition(b"\n")
        try:
            head = json.loads(first)
            if (head["magic"], head["bytes"], head["crc32c"]) != (MAGIC, len(text), crc32c.crc32c(text)):
                raise TableLogError(f"{path} is damaged: {len(text)} bytes, where its first line says {first.decode()}")
            if head["version"] != VERSION:
                raise TableLogError(f"{path} is of version {head['version']}; this Penstock knows {VERSION}: use a newer one")
            body = json.loads(text)
            files = body["files"]
            return cls(
                number=body["number"],
                schema=pa.ipc.read_schema(pa.py_buffer(base64.b64decode(body["schema"]))),
                cuts=tuple(body["cuts"]),
                progress={name: Progress.from_json(progress) for name, progress in body["progress"].items()},
                added=tuple(map(_file_from_json, body["added"])),
                removed=tuple(body["removed"]),
                files=None if files is None else tuple(map(_file_from_json, files)),
            )
        except (KeyError, TypeError, ValueError, pa.ArrowInvalid) as error:
            raise TableLogError(f"{path} is no entry of a table's log: {error}") from error


def entry_path(number: int) -> str:
    """Where the entry of a number is."""
    return f"{LOG}{number:020d}.json"


def entry_numbers(store: FileStore) -> list[int]:
    """The numbers of all entries."""
    names = [file.path.removeprefix(LOG) for file in store.list(LOG)]
    return sorted(int(name.removesuffix(".json")) for name in names if name.endswith(".json") and name[:-5].isdigit())


def read_entry(store: FileStore, number: int) -> LogEntry:
    """Read an entry. Raises TableLogError if it is missing."""
    data = store.read(entry_path(number))
    if data is None:
        raise TableLogError(f"{entry_path(number)} is missing in {store.root}; the table cannot be told without it")
    return LogEntry.from_bytes(data, entry_path(number))


def live_files(store: FileStore, numbers: list[int], last: LogEntry) -> dict[str, DataFile]:
    """The files of the table as of the last entry, by path."""
    later = []
    checkpoint = last
    while checkpoint.files is None:
        later.append(checkpoint)
        if checkpoint.number - 1 not in numbers:
            raise TableLogError(
                f"{entry_path(checkpoint.number - 1)} is missing in {store.root}, and no later entry names all files"
            )
        checkpoint = read_entry(store, checkpoint.number - 1)
    files = {file.path: file for file in checkpoint.files}
    for entry in reversed(later):
        for path in entry.removed:
            files.pop(path, None)
        files.update((file.path, file) for file in entry.added)
    return files


def _file_to_json(file: DataFile) -> dict[str, Any]:
    return {"path": file.path, "staged": file.staged, "rows": file.rows, "size": file.size, "values": file.values}


def _file_from_json(fields: Mapping[str, Any]) -> DataFile:
    return DataFile(fields["path"], fields["rows"], fields["size"], tuple(fields["values"]), fields["staged"])
