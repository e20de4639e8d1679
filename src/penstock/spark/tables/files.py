"""The files of a table: in a local directory, or under a prefix in an S3 store. When a call returns, its writes are durable, even
across a power cut."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple, Protocol
from urllib.parse import urlparse
from uuid import uuid4

from penstock.spark.tables.errors import TableOptionError

if TYPE_CHECKING:
    from obstore.store import S3Store

BUFFER_BYTES: Final = 8 << 20
REQUESTS_MAX: Final = 16
SCHEMES: Final = ("s3", "s3a")


class FileEntry(NamedTuple):
    """One file in a listing."""

    path: str
    size: int
    modified_ms: int


class FileStore(Protocol):
    """Files by their paths below one root. It is pickled to tasks."""

    @property
    def root(self) -> str:
        """The root as a URL for other libraries."""
        ...

    def create(self, path: str, data: bytes) -> bool:
        """Create a file atomically. Returns False if it exists."""
        ...

    def read(self, path: str) -> bytes | None:
        """A whole file; None if there is none."""
        ...

    def open_output(self, path: str) -> IO[bytes]:
        """Open a file for writing; it exists once it is closed."""
        ...

    def open_input(self, path: str) -> IO[bytes]:
        """Open a file for random access."""
        ...

    def list(self, prefix: str) -> list[FileEntry]:
        """All files below a directory, in the order of their paths."""
        ...

    def move(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Move files, replacing existing ones; missing files count as moved."""
        ...

    def delete(self, paths: Iterable[str]) -> None:
        """Delete files; missing files are ignored."""
        ...


@dataclass(frozen=True)
class LocalStore:
    """A directory."""

    directory: str

    @property
    def root(self) -> str:
        return self.directory

    def create(self, path: str, data: bytes) -> bool:
        target = self._make_room(path)
        # A link is created atomically, and its file is complete by then.
        whole = target.with_name(f".{target.name}.{uuid4().hex}")
        with whole.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(whole, target)
        except FileExistsError:
            return False
        finally:
            whole.unlink()
        sync_directory(target.parent)
        return True

    def read(self, path: str) -> bytes | None:
        try:
            return Path(self.directory, path).read_bytes()
        except FileNotFoundError:
            return None

    def open_output(self, path: str) -> IO[bytes]:
        return _SyncedFile(self._make_room(path))  # type: ignore[return-value] # enough of one

    def open_input(self, path: str) -> IO[bytes]:
        return Path(self.directory, path).open("rb")

    def list(self, prefix: str) -> list[FileEntry]:
        entries = []
        for folder, _, names in os.walk(Path(self.directory, prefix)):
            for name in names:
                path = Path(folder, name)
                with suppress(FileNotFoundError):
                    state = path.stat()
                    entries.append(
                        FileEntry(str(path.relative_to(self.directory)), state.st_size, state.st_mtime_ns // 1_000_000)
                    )
        return sorted(entries)

    def move(self, pairs: Sequence[tuple[str, str]]) -> None:
        folders = set()
        for source, target in pairs:
            destination = self._make_room(target)
            with suppress(FileNotFoundError):
                Path(self.directory, source).rename(destination)
                folders.add(destination.parent)
        for folder in folders:
            sync_directory(folder)

    def delete(self, paths: Iterable[str]) -> None:
        folders = set()
        for path in paths:
            target = Path(self.directory, path)
            with suppress(FileNotFoundError):
                target.unlink()
                folders.add(target.parent)
        for folder in folders:
            sync_directory(folder)

    def _make_room(self, path: str) -> Path:
        target = Path(self.directory, path)
        make_directory(target.parent)
        return target


class _SyncedFile:
    """A new file whose content and name are synced when it is closed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("xb", buffering=BUFFER_BYTES)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def close(self) -> None:
        if self._file.closed:
            return
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        sync_directory(self._path.parent)


def sync_directory(path: Path) -> None:
    """Sync the names in a directory."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def make_directory(path: Path) -> None:
    """Create a directory and its parents durably."""
    missing = []
    while not path.is_dir():
        missing.append(path)
        path = path.parent
    for folder in reversed(missing):
        folder.mkdir(exist_ok=True)
        sync_directory(folder.parent)


@dataclass(frozen=True)
class ObjectStore:
    """A prefix of a bucket; options are named like the environment variables, AWS_…"""

    bucket: str
    prefix: str
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def root(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}".rstrip("/")

    def create(self, path: str, data: bytes) -> bool:
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        try:
            obstore.put(self._store, path, data, mode="create", use_multipart=False)
        except (AlreadyExistsError, PreconditionError):
            # Our own first attempt may have succeeded, with its answer lost and the request retried.
            return self.read(path) == data
        return True

    def read(self, path: str) -> bytes | None:
        import obstore

        try:
            return bytes(obstore.get(self._store, path).bytes())
        except FileNotFoundError:
            return None

    def open_output(self, path: str) -> IO[bytes]:
        import obstore

        return _Upload(obstore.open_writer(self._store, path, buffer_size=BUFFER_BYTES))  # type: ignore[return-value] # enough of one

    def open_input(self, path: str) -> IO[bytes]:
        import obstore

        return _Download(self._store, path, obstore.head(self._store, path)["size"])  # type: ignore[return-value] # enough of one

    def list(self, prefix: str) -> list[FileEntry]:
        import obstore

        entries = []
        for chunk in obstore.list(self._store, prefix or None):
            entries += [FileEntry(item["path"], item["size"], int(item["last_modified"].timestamp() * 1000)) for item in chunk]
        return sorted(entries)

    def move(self, pairs: Sequence[tuple[str, str]]) -> None:
        with ThreadPoolExecutor(REQUESTS_MAX) as pool:
            list(pool.map(lambda pair: self._move(*pair), pairs))

    def delete(self, paths: Iterable[str]) -> None:
        with ThreadPoolExecutor(REQUESTS_MAX) as pool:
            list(pool.map(self._delete, paths))

    def _move(self, source: str, target: str) -> None:
        import obstore

        with suppress(FileNotFoundError):
            obstore.copy(self._store, source, target)
            self._delete(source)

    def _delete(self, path: str) -> None:
        import obstore

        with suppress(FileNotFoundError):
            obstore.delete(self._store, path)

    @property
    def _store(self) -> S3Store:
        return _object_store(self.bucket, self.prefix, tuple(sorted(self.options.items())))


class _Upload:
    """A file-like object for Arrow over a multipart upload."""

    def __init__(self, upload: Any) -> None:
        self._upload = upload
        self._written = 0
        self.closed = False

    def write(self, data: Any) -> int:
        self._upload.write(data)
        size = memoryview(data).nbytes
        self._written += size
        return size

    def tell(self) -> int:
        return self._written

    def flush(self) -> None:
        """Does nothing: parts are sent when they are full, the rest when it is closed."""

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._upload.close()


class _Download(io.RawIOBase):
    """An object, of which only the ranges that are read are fetched."""

    def __init__(self, store: Any, path: str, size: int) -> None:
        super().__init__()
        self._store = store
        self._path = path
        self._size = size
        self._position = 0

    def read(self, size: int = -1) -> bytes:
        import obstore

        left = max(self._size - self._position, 0)
        wanted = left if size < 0 else min(size, left)
        if not wanted:
            return b""
        data = bytes(obstore.get_range(self._store, self._path, start=self._position, length=wanted))
        self._position += len(data)
        return data

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = start + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True


_stores: dict[tuple[str, str, tuple[tuple[str, str], ...]], Any] = {}


def _object_store(bucket: str, prefix: str, options: tuple[tuple[str, str], ...]) -> S3Store:
    from obstore.store import S3Store

    key = (bucket, prefix, options)
    if key not in _stores:
        given = {name.lower(): value for name, value in (*_environment(), *options)}
        allows_http = given.pop("aws_allow_http", "").lower() == "true" or given.get("aws_endpoint_url", "").startswith("http:")
        _stores[key] = S3Store(
            bucket,
            prefix=prefix or None,
            config=given,  # type: ignore[arg-type] # a dict with keys of its own
            client_options={"allow_http": allows_http},
        )
    return _stores[key]  # type: ignore[no-any-return] # kept without its type, which is imported late


def _environment() -> list[tuple[str, str]]:
    wanted = (
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AWS_REGION",
        "AWS_ENDPOINT_URL",
        "AWS_ALLOW_HTTP",
    )
    return [(name, os.environ[name]) for name in wanted if name in os.environ]


def object_options(options: Mapping[str, str]) -> dict[str, str]:
    """Options of an S3 store with what the environment adds, as delta-rs takes them."""
    settings = {**dict(_environment()), **options}
    if settings.get("AWS_ENDPOINT_URL", "").startswith("http:"):
        settings.setdefault("AWS_ALLOW_HTTP", "true")
    return settings


def file_store(location: str, options: Mapping[str, str]) -> FileStore:
    """The store of a location."""
    parsed = urlparse(location)
    if parsed.scheme in SCHEMES:
        if not parsed.netloc:
            raise TableOptionError(f"location {location!r} names no bucket: s3://BUCKET/PATH")
        if find_spec("obstore") is None:
            raise TableOptionError(f"location {location!r} needs obstore, which is not installed: pip install 'penstock[tables]'")
        return ObjectStore(parsed.netloc, parsed.path.strip("/"), dict(options))
    if parsed.scheme not in ("", "file"):
        raise TableOptionError(f"location {location!r}: tables are on a local disk or s3://")
    return LocalStore(str(Path(parsed.path if parsed.scheme else location).absolute()))
