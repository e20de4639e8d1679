"""Locations of files to load: a file system shared by all workers, or an S3 bucket."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import IO, Final, NamedTuple, Protocol
from urllib.parse import urlparse

from penstock.spark.tables.files import SCHEMES, FileEntry, FileStore, file_store

_WILD: Final = frozenset("*?[")


class InputFile(NamedTuple):
    """A file with a stamp that changes when the file is written."""

    path: str
    size: int
    stamp: int

    @property
    def state(self) -> list[int]:
        """The state by which a change of the file is detected."""
        return [self.size, self.stamp]


class FileLocation(Protocol):
    """The files of a path, a directory or a pattern. It is pickled to tasks."""

    def find(self, suffixes: tuple[str, ...]) -> list[InputFile]:
        """The current files, in the order of their paths; in a directory, those with one of the suffixes. Names that begin with a
        dot or an underscore are skipped: such files are unfinished or belong to other programs."""
        ...

    def open(self, path: str) -> IO[bytes]:
        """Open one of them for random access."""
        ...


@dataclass(frozen=True)
class LocalFiles:
    """Files of this machine, or of a file system mounted at the same path on all workers."""

    path: str

    def find(self, suffixes: tuple[str, ...]) -> list[InputFile]:
        if os.path.isdir(self.path):
            names: Iterator[str] = (str(path) for path in Path(self.path).rglob("*") if path.name.endswith(suffixes))
        else:
            names = iter(glob.glob(self.path, recursive=True))
        files = []
        for name in sorted(names):
            if _is_finished(name) and os.path.isfile(name):
                status = os.stat(name)
                files.append(InputFile(name, status.st_size, status.st_mtime_ns))
        return files

    def open(self, path: str) -> IO[bytes]:
        return Path(path).open("rb")


@dataclass(frozen=True)
class ObjectFiles:
    """Objects of a bucket: one by its key, those with a prefix, or those whose keys match a pattern."""

    store: FileStore
    key: str

    def find(self, suffixes: tuple[str, ...]) -> list[InputFile]:
        objects = self._matching() if _WILD & set(self.key) else self._below(suffixes) or self._named()
        return [
            InputFile(f"{self.store.root}/{entry.path}", entry.size, entry.modified_ms)
            for entry in objects
            if _is_finished(entry.path)
        ]

    def open(self, path: str) -> IO[bytes]:
        return self.store.open_input(path.removeprefix(f"{self.store.root}/"))

    def _below(self, suffixes: tuple[str, ...]) -> list[FileEntry]:
        return [entry for entry in self.store.list(self.key) if entry.path.endswith(suffixes)]

    def _named(self) -> list[FileEntry]:
        """A store lists what is below a key, not what has it."""
        folder = str(PurePosixPath(self.key).parent)
        return [entry for entry in self.store.list("" if folder == "." else folder) if entry.path == self.key]

    def _matching(self) -> list[FileEntry]:
        parts = PurePosixPath(self.key).parts
        fixed = next(at for at, part in enumerate(parts) if _WILD & set(part))
        return [entry for entry in self.store.list("/".join(parts[:fixed])) if _fits(PurePosixPath(entry.path).parts, parts)]


def location_of(path: str, options: Mapping[str, str]) -> FileLocation:
    """The location of a path. Raises TableOptionError for an unknown scheme."""
    address = urlparse(path)
    if address.scheme in SCHEMES:
        return ObjectFiles(file_store(f"{address.scheme}://{address.netloc}", options), _key(path, address.netloc))
    if "://" in path:
        file_store(path, options)  # says which there are
    return LocalFiles(address.path if address.scheme == "file" else path)


def _key(path: str, bucket: str) -> str:
    """The key after the bucket's name; a question mark in a pattern does not start a query string."""
    return path.partition("://")[2].removeprefix(bucket).strip("/")


def _is_finished(path: str) -> bool:
    return not os.path.basename(path).startswith((".", "_"))


def _fits(path: tuple[str, ...], pattern: tuple[str, ...]) -> bool:
    """Whether a path matches a pattern, in which `**` is any number of directories."""
    if not pattern:
        return not path
    if pattern[0] == "**":
        return any(_fits(path[at:], pattern[1:]) for at in range(len(path) + 1))
    return bool(path) and fnmatchcase(path[0], pattern[0]) and _fits(path[1:], pattern[1:])
