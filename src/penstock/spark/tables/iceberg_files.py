"""Syncs Iceberg's own files on a local disk before a commit refers to them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

from penstock.spark.tables.files import sync_directory


class SyncedFileIO(PyArrowFileIO):
    """pyiceberg's file access, with a sync of files written to a local disk."""

    def new_output(self, location: str) -> PyArrowFile:
        scheme, netloc, path = self.parse_location(location, self.properties)
        if scheme not in ("", "file"):
            return super().new_output(location)
        return _SyncedFile(location, path, self.fs_by_scheme(scheme, netloc))


class _SyncedFile(PyArrowFile):
    def create(self, overwrite: bool = False) -> Any:
        return _SyncedStream(super().create(overwrite), Path(self._path))


class _SyncedStream:
    """A stream that is synced when it is closed."""

    def __init__(self, stream: Any, path: Path) -> None:
        self._stream = stream
        self._path = path

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __enter__(self) -> _SyncedStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._stream.closed:
            return
        self._stream.close()
        with self._path.open("rb") as file:
            os.fsync(file.fileno())
        sync_directory(self._path.parent)
