"""A local directory as a Disk: one thread writes and syncs, one deletes, a few read. Small writes are done on the event loop
while the disk is quick, with a sync if it is the only disk there is; for one that may be of several writers the loop waits 2 ms
at most.

Every call has a deadline (see disk_threads). A directory or file that is deleted, moved or unmounted while it is open makes
writes and `check` fail: bytes in a file without a name would be gone with the process. Writes go out in pieces of at most 1 MiB,
because the kernel takes several such faster than one large one, into preallocated files, so that a sync need not grow them. A
bounded number of files is open; a piece handed out keeps its own open. Files and directories are this user's alone.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from penstock.blob.disk import Buffer, DiskSpace, FilePiece
from penstock.blob.disk_threads import DISK_TIMEOUT_S, DiskThreads, as_disk_error
from penstock.blob.file_write import VECTOR_BYTES_MAX, VECTOR_MAX, set_aside, write_all, write_rest
from penstock.blob.probe import DiskProbe
from penstock.blob.write_pace import MEMORY_SLOW_MAX, SYNC_IN_PLACE_BYTES, SYNC_MEAN_MAX_S, SYNC_SLOW_MAX, SYNC_WAIT_S, WritePace
from penstock.core.clock import Clock, SystemClock
from penstock.core.errors import ConfigError
from penstock.kernels.file_links import has_name
from penstock.kernels.sync_thread import SyncThread

SET_ASIDE_BYTES = 16 << 20  # at a time, so that a small store stays small
OPEN_FILES_MAX = 64
READ_THREADS = 4
AT_HAND_BYTES = 64 << 10  # a longer read keeps the loop from other work, even if it only comes from memory
# Written behind a short write. A sync of a block that was preallocated and never written has to note in the file system that it
# is written now, which takes a quarter of its time; the writes that follow overwrite the zeros, and are spared that.
ZEROS = bytes(64 << 10)
# The limit for writes, for which a thread costs half as much again; what 256 producers of 1 KiB send in one turn is within it.
WRITE_AT_ONCE_BYTES = 512 << 10
LOCK_NAME = "lock"
FILE_MODE = 0o600
DIRECTORY_MODE = 0o700

log = logging.getLogger(__name__)


class _OpenFile:
    """A descriptor that closes with its last reference."""

    __slots__ = ("fd",)

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __del__(self) -> None:
        os.close(self.fd)


class _Tail:
    """The growing end of a file: where it stands, what waits to be written, and whether its end is still known."""

    __slots__ = ("failed", "file", "finish", "in_sync", "length", "reserved", "set_aside", "waiting", "zeroed")

    def __init__(self) -> None:
        self.file: _OpenFile | None = None
        self.length = 0
        self.reserved: int | None = None
        self.set_aside = 0
        self.zeroed = 0  # up to where zeros were written ahead
        self.waiting: list[Buffer] = []
        self.finish: list[Callable[[], None]] = []
        self.failed = False
        self.in_sync: tuple[int, float] | None = None  # bytes that a sync in flight covers, and when it began


class LocalDisk:
    """Files in one directory, locked against other processes. `durable=False` acknowledges after the write, before any sync."""

    def __init__(
        self,
        path: Path,
        directory: _OpenFile,
        lock: _OpenFile,
        writer: DiskThreads,
        *,
        durable: bool,
        is_only: bool,
        timeout_s: float,
        clock: Clock,
    ) -> None:
        self.probe = DiskProbe()
        self._now = clock.monotonic
        self._path = path
        self._directory = directory
        self._lock = lock
        self._durable = durable
        self.boot = _boot_number()
        self._tails: dict[str, _Tail] = {}
        self._open: OrderedDict[str, _OpenFile] = OrderedDict()
        self._open_guard = threading.Lock()
        self._writer = writer
        self._readers = DiskThreads(f"penstock-read-{path.name}", READ_THREADS, timeout_s)
        self._remover = DiskThreads(f"penstock-delete-{path.name}", 1, timeout_s)
        self._can_ask_at_hand = hasattr(os, "RWF_NOWAIT")  # until a file system says no
        self._pace = WritePace(slow_max=MEMORY_SLOW_MAX)
        # One of several disks must delay no other, however slow it becomes.
        self._syncs = SyncThread(f"penstock-sync-{path.name}") if durable and is_only else None
        if durable:
            self._pace = WritePace(slow_max=SYNC_SLOW_MAX, mean_max_s=SYNC_MEAN_MAX_S)

    @classmethod
    async def open(
        cls,
        path: Path,
        *,
        durable: bool = True,
        is_only: bool = False,
        timeout_s: float = DISK_TIMEOUT_S,
        clock: Clock | None = None,
    ) -> LocalDisk:
        """Take the directory, making it if needed; `is_only` if it is its group's only one. ConfigError says why it cannot be
        taken; no call to the disk takes longer than `timeout_s`."""
        writer = DiskThreads(f"penstock-write-{path.name}", 1, timeout_s)
        try:
            directory, lock = await writer.submit(partial(_lock_directory, path))
        except BaseException:
            writer.stop()
            raise
        try:
            for name in await writer.submit(partial(_tighten, path)):
                if durable:
                    # A process that was killed may have left bytes that only memory holds; what is read here must be there to
                    # stay.
                    await writer.submit(partial(_sync_file, path / name))
        except BaseException:
            writer.stop()
            fcntl.flock(lock.fd, fcntl.LOCK_UN)
            raise
        clock = clock or SystemClock()
        return cls(path, directory, lock, writer, durable=durable, is_only=is_only, timeout_s=timeout_s, clock=clock)

    @property
    def outlives_power_loss(self) -> bool:
        return self._durable

    async def files(self) -> dict[str, int]:
        def scan() -> dict[str, int]:
            with os.scandir(self._directory.fd) as entries:
                return {entry.name: entry.stat().st_size for entry in entries if entry.is_file() and entry.name != LOCK_NAME}

        return await self._readers.submit(scan)

    def reserve(self, name: str, length: int) -> None:
        self._tail(name).reserved = length

    def append(self, name: str, buffers: Sequence[Buffer], finish: Sequence[Callable[[], None]] = ()) -> None:
        tail = self._tails.get(name) or self._tail(name)
        tail.waiting += buffers
        tail.finish += finish

    async def flush(self, name: str) -> None:
        tail = self._tail(name)
        buffers, tail.waiting = tail.waiting, []
        finish, tail.finish = tail.finish, []
        reserved = tail.reserved
        self._check_tail(name, tail)
        in_sync, tail.in_sync = tail.in_sync, None
        try:
            if in_sync is not None:
                await self._writer.submit(lambda: self._finish_sync(name, tail, *in_sync))
            if in_sync is None or buffers:
                await self._writer.submit(lambda: self._write(name, tail, buffers, finish, reserved))
        except BaseException as error:
            raise self._tail_failed(tail, error) from error
        if reserved == 0:
            # The file is complete: from now on reads open it themselves.
            self._tails.pop(name, None)

    def flush_at_once(self, name: str) -> bool:
        """See Disk. A write is done at once if that takes less time than to have the thread do it: it is small, into room that is
        set aside, and syncs, if there are any, have been quick. Not while the thread is at work, which would be overtaken."""
        tail = self._tails.get(name)
        if (
            tail is None
            or tail.failed  # `flush` fails a file whose end is unknown
            or tail.file is None
            or tail.reserved == 0
            or not self._writer.is_idle
            or (self._durable and (self._syncs is None or self._syncs.is_busy))
            or self._now() < self._pace.quick_from
        ):
            return False
        length = 0
        for buffer in tail.waiting:
            length += len(buffer)
        if length > WRITE_AT_ONCE_BYTES or (tail.reserved and tail.length + length > tail.set_aside):
            return False
        buffers, tail.waiting = tail.waiting, []
        finish, tail.finish = tail.finish, []
        try:
            for fill in finish:
                fill()
            return self._write_file(name, tail, buffers, length, tail.reserved, wait_s=SYNC_WAIT_S)
        except BaseException as error:
            if isinstance(error, OSError):
                self._give_up(tail)
            raise self._tail_failed(tail, error) from error

    def _check_tail(self, name: str, tail: _Tail) -> None:
        if tail.failed:
            raise OSError(errno.EIO, f"an earlier flush of {name} failed, so its end is unknown; go on in another file")

    def _tail_failed(self, tail: _Tail, error: BaseException) -> BaseException:
        tail.failed = True
        self.probe.failures += isinstance(error, TimeoutError)  # others are counted where they happen
        if isinstance(error, OSError) or not isinstance(error, Exception):
            return error
        return as_disk_error(error, str(self._path))

    async def read(self, name: str, offset: int, length: int) -> bytes:
        if (found := self.read_at_hand(name, offset, length)) is not None:
            return found
        return await self._readers.submit(partial(self._read, name, offset, length))

    async def delete(self, name: str) -> None:
        # To delete a chunk takes tens of milliseconds, for which writes to others do not wait. A file that is still written to is
        # left to the thread that writes: a write that hangs must not make it again.
        threads = self._writer if name in self._tails else self._remover
        await threads.submit(lambda: self._unlink(name))

    async def space(self) -> DiskSpace:
        def look() -> DiskSpace:
            stat, device = os.statvfs(self._directory.fd), os.fstat(self._directory.fd).st_dev
            return DiskSpace(stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize, device)

        return await self._readers.submit(look)

    async def check(self) -> None:
        await self._readers.submit(self._check_place)

    def piece(self, name: str, offset: int, length: int) -> FilePiece | None:
        if self._readers.is_hung:
            return None  # sending from a hung disk would hang the sender
        file = self._opened(name)
        return FilePiece(file.fd, offset, length, file)

    async def close(self) -> None:
        try:
            await self._writer.submit(lambda: None)
            await self._remover.submit(lambda: None)
        except OSError as error:
            # A write that hangs may still arrive: until the process has ended, no other may take the directory.
            log.error("%s is left locked: %s", self._path, error.strerror)
        else:
            fcntl.flock(self._lock.fd, fcntl.LOCK_UN)
        self._writer.stop()
        self._readers.stop()
        self._remover.stop()
        if self._syncs is not None:
            self._syncs.stop()
        self._tails.clear()
        self._open.clear()

    def _tail(self, name: str) -> _Tail:
        tail = self._tails.get(name)
        if tail is None:
            tail = self._tails[name] = _Tail()
        return tail

    def _write(
        self, name: str, tail: _Tail, buffers: list[Buffer], finish: list[Callable[[], None]], reserved: int | None
    ) -> None:
        """Write and sync."""
        for fill in finish:
            fill()
        try:
            self._write_file(name, tail, buffers, sum(map(len, buffers)), reserved)
        except OSError:
            self._give_up(tail)
            raise

    def _finish_sync(self, name: str, tail: _Tail, length: int, began: float) -> None:
        """Wait for a sync to its end."""
        assert self._syncs is not None, "only a durable disk syncs"
        assert tail.file is not None, "it was written to"
        try:
            self._syncs.finish()
            self._note_write(name, tail, tail.file.fd, length, began, began, self._now())
        except OSError:
            self._give_up(tail)
            raise

    def _give_up(self, tail: _Tail) -> None:
        """Count a failure. Nothing more is written to the file: give back what was set aside, if the disk still does that."""
        self.probe.failures += 1
        if tail.file is not None:
            with suppress(OSError):
                os.ftruncate(tail.file.fd, tail.length)

    def _write_file(
        self, name: str, tail: _Tail, buffers: list[Buffer], length: int, reserved: int | None, *, wait_s: float | None = None
    ) -> bool:
        """Write so many bytes and sync. With `wait_s`, wait for the sync only so long; False if it takes longer, then `flush`
        finishes it."""
        created = tail.file is None
        if tail.file is None:
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            tail.file = _OpenFile(os.open(name, flags, FILE_MODE, dir_fd=self._directory.fd))
        fd = tail.file.fd
        if reserved and tail.length + length > tail.set_aside:
            tail.set_aside = min(tail.length + length + SET_ASIDE_BYTES, max(reserved, tail.set_aside))
            set_aside(fd, tail.set_aside)
        if reserved and self._durable and 0 < length <= SYNC_IN_PLACE_BYTES and tail.length + length > tail.zeroed:
            self._add_zeros(tail, buffers, length)
        began = self._now()
        if 0 < length <= VECTOR_BYTES_MAX and len(buffers) <= VECTOR_MAX:
            written = os.pwritev(fd, buffers, tail.length)
            if written < length:
                write_rest(fd, buffers, written, tail.length)
        else:
            write_all(fd, buffers, tail.length)
        if reserved == 0:
            os.ftruncate(fd, tail.length + length)
        stored = ended = self._now()
        if self._durable:
            if self._syncs is None or wait_s is None or length <= SYNC_IN_PLACE_BYTES:
                os.fdatasync(fd)
            elif not self._syncs.sync(fd, wait_s):
                tail.in_sync = (length, stored)
                return False
            ended = self._now()
            if created:
                os.fsync(self._directory.fd)
        self._note_write(name, tail, fd, length, began, stored, ended)
        return True

    def _add_zeros(self, tail: _Tail, buffers: list[Buffer], length: int) -> None:
        """Have zeros written behind these buffers of so many bytes, within what is set aside."""
        end = tail.length + length
        tail.zeroed = min(end + len(ZEROS), tail.set_aside)
        if tail.zeroed > end:
            buffers.append(ZEROS[: tail.zeroed - end])

    def _note_write(  # noqa: PLR0917 - compiled, keywords make it slower
        self, name: str, tail: _Tail, fd: int, length: int, began: float, written: float, ended: float
    ) -> None:
        """Count a write that is on the disk, by when it began, was in the file, and was synced. FileNotFoundError if the file has
        been deleted meanwhile."""
        if self._durable:
            self.probe.syncs.note(ended - written)
        if length <= WRITE_AT_ONCE_BYTES:  # of a long write, its length tells more than the disk's pace
            self._pace.note(began, ended)
        if not has_name(fd):
            raise FileNotFoundError(errno.ENOENT, f"{self._path / name} was deleted under the running process")
        tail.length += length
        self.probe.writes += 1
        self.probe.bytes_written += length

    def _read(self, name: str, offset: int, length: int) -> bytes:
        file = self._opened(name)
        data = os.pread(file.fd, length, offset)
        if len(data) == length or not data:
            return data
        pieces = [data]
        got = len(data)
        while got < length and (data := os.pread(file.fd, length - got, offset + got)):
            pieces.append(data)
            got += len(data)
        return b"".join(pieces)

    def read_at_hand(self, name: str, offset: int, length: int) -> bytes | None:
        """See Disk: the bytes if the system has them in memory, so that no thread is needed to wait for them."""
        if length > AT_HAND_BYTES or not self._can_ask_at_hand:
            return None
        if name in self._open:
            file = self._opened(name)
        else:
            tail = self._tails.get(name)
            if tail is None or tail.file is None:
                return None  # to open a file may take as long as to read it
            file = tail.file
        buffer = bytearray(length)
        try:
            count = os.preadv(file.fd, [buffer], offset, os.RWF_NOWAIT)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL):
                raise
            self._can_ask_at_hand = False
            return None
        return bytes(buffer) if count == length else None

    def _opened(self, name: str) -> _OpenFile:
        with self._open_guard:
            file = self._open.get(name)
            if file is not None:
                self._open.move_to_end(name)
                return file
            file = _OpenFile(os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._directory.fd))
            self._open[name] = file
            while len(self._open) > OPEN_FILES_MAX:
                self._open.popitem(last=False)
            return file

    def _unlink(self, name: str) -> None:
        self._tails.pop(name, None)
        with self._open_guard:
            self._open.pop(name, None)
        try:
            os.unlink(name, dir_fd=self._directory.fd)
        except FileNotFoundError:
            return
        if self._durable:
            os.fsync(self._directory.fd)

    def _check_place(self) -> None:
        held = os.fstat(self._lock.fd)
        try:
            named = os.stat(self._path / LOCK_NAME)
        except (FileNotFoundError, NotADirectoryError):
            named = None
        if named is None or (held.st_dev, held.st_ino) != (named.st_dev, named.st_ino):
            raise FileNotFoundError(errno.ENOENT, f"{self._path} was deleted, moved or unmounted under the running process")
        for name, tail in list(self._tails.items()):
            file = tail.file
            if file is not None and not tail.failed and os.fstat(file.fd).st_nlink == 0:
                raise FileNotFoundError(errno.ENOENT, f"{self._path / name} was deleted under the running process")


def _lock_directory(path: Path) -> tuple[_OpenFile, _OpenFile]:
    """The directory and its lock file, both open."""
    try:
        path.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
        directory = _OpenFile(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        lock = _OpenFile(os.open(LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE, dir_fd=directory.fd))
    except OSError as error:
        raise ConfigError(
            f"cannot write to {path}: {error.strerror}; name a directory that this user may write to, or change its owner"
        ) from error
    try:
        fcntl.flock(lock.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise ConfigError(f"{path} is in use by a running process; stop it or name another directory") from error
    _sync_directory(path.parent)
    return directory, lock


def _tighten(path: Path) -> list[str]:
    """Take the directory and its files from other users: a version before this one let them read. Returns the files' names."""
    names: list[str] = []
    try:
        if path.stat().st_mode & 0o077:
            path.chmod(DIRECTORY_MODE)
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.is_file(follow_symlinks=False):
                    names.append(entry.name)
                    if entry.stat(follow_symlinks=False).st_mode & 0o077:
                        os.chmod(entry.path, FILE_MODE)
    except PermissionError as error:
        log.warning("other users may be able to read %s: %s; make this user its owner", path, error.strerror)
        names = os.listdir(path)
    return names


def _boot_number() -> int:
    try:
        drawn = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
    except OSError:
        drawn = f"{os.getpid():032x}"  # then nothing is certain beyond this process
    return int(drawn.replace("-", "")[-15:], 16) | 1 << 62


def _sync_file(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _sync_directory(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
