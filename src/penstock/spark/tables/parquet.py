"""Tables of plain Parquet files, for readers that only know directories: they see each row in exactly one file. The log behind it
is described in `parquet_log`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from penstock.spark.tables.errors import TableConflictError
from penstock.spark.tables.parquet_log import (
    LOG,
    WHOLE_EVERY,
    LogEntry,
    entry_numbers,
    entry_path,
    live_files,
    read_entry,
)
from penstock.spark.tables.progress import Progress
from penstock.spark.tables.schemas import SchemaChange
from penstock.spark.tables.table import Table
from penstock.spark.tables.task_writer import STAGED, DataFile, TaskWriter


class Parquet(Table):
    """A directory of Parquet files."""

    _last: LogEntry | None = None
    _files: dict[str, DataFile] | None = None

    def refresh(self) -> None:
        if self._last is not None and self.store.read(entry_path(self._last.number + 1)) is None:
            return
        numbers = entry_numbers(self.store)
        if not numbers:
            self._last = self._files = None
            return
        self._last = read_entry(self.store, numbers[-1])
        self._files = live_files(self.store, numbers, self._last)
        self._publish(self._last)

    def every_progress(self) -> dict[str, Progress]:
        return {} if self._last is None else dict(self._last.progress)

    def schema(self) -> pa.Schema | None:
        return None if self._last is None else self._last.schema

    def data_files(self) -> list[DataFile]:
        assert self._files is not None, "there is a table"
        return list(self._files.values())

    def writer(self) -> TaskWriter:
        assert self._last is not None, "the table is prepared"
        return TaskWriter(self.store, self._last.schema, self.cuts, file_bytes=self.spec.compact_file_bytes, stages=True)

    def vacuum(self, after_s: float) -> int:
        assert self._files is not None, "there is a table"
        before_ms = int((time.time() - after_s) * 1000)
        numbers = entry_numbers(self.store)
        whole = next((number for number in reversed(numbers) if read_entry(self.store, number).files is not None), 0)
        kept = {entry_path(number) for number in numbers if number >= whole}
        old = []
        for entry in self.store.list(""):
            is_data = entry.path.endswith(".parquet") and not entry.path.startswith(("_", "."))
            is_ours = entry.path.startswith((LOG, STAGED)) or is_data
            if is_ours and entry.modified_ms < before_ms and entry.path not in self._files and entry.path not in kept:
                old.append(entry.path)
        self.store.delete(old)
        return len(old)

    def close(self) -> None:
        """Nothing to close."""

    def _partition_names(self) -> list[str]:
        assert self._last is not None, "there is a table"
        return list(self._last.cuts)

    def _make(self, schema: pa.Schema) -> None:
        self._append(LogEntry(0, schema.remove_metadata(), tuple(cut.name for cut in self.cuts), files=()))

    def _change(self, change: SchemaChange, schema: pa.Schema) -> None:
        assert self._last is not None, "there is a table"
        wider = pa.schema([*self._last.schema, *change.added])
        self._append(replace(self._last, number=self._last.number + 1, schema=wider, added=(), removed=(), files=None))

    def _widens(self, has: pa.DataType, wanted: pa.DataType) -> bool:
        return False

    def _try_commit(self, added: Sequence[DataFile], removed: Sequence[DataFile], progress: Progress, rewrites: bool) -> None:
        assert self._last is not None, "there is a table"
        self._append(
            replace(
                self._last,
                number=self._last.number + 1,
                progress={**self._last.progress, self.pipeline: progress},
                added=tuple(replace(file, stats="{}", footer=b"") for file in added),
                removed=tuple(file.path for file in removed),
                files=None,
            )
        )

    def _append(self, entry: LogEntry) -> None:
        """Commit, and publish the files to readers."""
        files = dict(self._files or {})
        for path in entry.removed:
            files.pop(path, None)
        files.update((file.path, file) for file in entry.added)
        if entry.number % WHOLE_EVERY == 0:
            entry = replace(entry, files=tuple(files.values()))
        if not self.store.create(entry_path(entry.number), entry.to_bytes()):
            raise TableConflictError(f"{self} has an entry {entry.number} by somebody else")
        if entry_numbers(self.store)[-1] > entry.number:
            # This run slept so long that vacuum deleted the entry that would have conflicted with ours.
            self.store.delete([entry_path(entry.number)])
            self._last = self._files = None
            raise TableConflictError(f"{self} has had an entry {entry.number} by somebody else")
        self._last, self._files = entry, files
        self._publish(entry)

    def _publish(self, entry: LogEntry) -> None:
        """Move the files of a commit to where readers see them. Idempotent; a file of the same path is replaced atomically."""
        new = {file.path for file in entry.added}
        self.store.delete(path for path in entry.removed if path not in new)
        self.store.move([(file.staged, file.path) for file in entry.added if file.staged])
