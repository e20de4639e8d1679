"""What `penstock doctor` says about the data directory and the disks: space, file system, speed of syncs, rights, lock."""

from __future__ import annotations

import fcntl
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from penstock.cli.doctor_finding import Finding, fail, ok, size, warn
from penstock.server import NodeConfig

SPACE_MIN: Final = 512 << 20  # half of it a disk keeps free for itself
SPACE_GOOD: Final = 5 << 30
SYNCS: Final = 15
SYNC_BYTES: Final = 4096
SYNC_S_GOOD: Final = 0.02
_IN_MEMORY: Final = frozenset({"tmpfs", "ramfs"})
_REMOTE: Final = frozenset({"nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "virtiofs"})
_MOUNTS: Final = Path("/proc/self/mounts")
_LOCK_NAME: Final = "lock"


def check_storage(config: NodeConfig) -> Iterator[Finding]:
    """The data directory, and each disk that is elsewhere."""
    yield _directory(config.data_dir)
    yield _lock(config.data_dir)
    for place in dict.fromkeys((config.data_dir, *(config.disks or ()))):
        where = _existing(place.absolute())
        label = "" if place == config.data_dir else f" {place}"
        yield _space(f"space{label}", where)
        yield _file_system(f"file system{label}", where)
        if os.access(where, os.W_OK | os.X_OK):
            yield _sync_speed(f"sync{label}", where)


def _directory(path: Path) -> Finding:
    where = _existing(path.absolute())
    if not where.is_dir():
        return fail("data directory", f"{where} is not a directory", "give another --data-dir")
    if not os.access(where, os.R_OK | os.W_OK | os.X_OK):
        return fail(
            "data directory",
            f"{where} cannot be written by this user",
            f"chown {os.getuid()} {where}, or give another --data-dir",
        )
    if where == path.absolute():
        return ok("data directory", str(where))
    return ok("data directory", f"{path.absolute()} does not exist yet; it can be created")


def _lock(path: Path) -> Finding:
    """Take a shared lock and release it: a running node holds it exclusively."""
    try:
        lock = os.open(path / _LOCK_NAME, os.O_RDONLY)
    except FileNotFoundError:
        return ok("lock", "no node has used it yet")
    except OSError as error:
        return fail("lock", f"{path / _LOCK_NAME} cannot be read: {error.strerror}", "run the doctor as the node's user")
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return ok("lock", "a running node uses the data directory", "another node needs another --data-dir")
    finally:
        os.close(lock)
    return ok("lock", "no node uses the data directory now")


def _space(name: str, where: Path) -> Finding:
    state = os.statvfs(where)
    free, total = state.f_bavail * state.f_frsize, state.f_blocks * state.f_frsize
    space = f"{size(free)} free of {size(total)}"
    if free < SPACE_MIN:
        return fail(name, space, "free space, or give another --data-dir: writes are refused when a disk is nearly full")
    if free < SPACE_GOOD:
        return warn(name, space, "free space soon, or set retention.bytes of topics")
    return ok(name, space)


def _file_system(name: str, where: Path) -> Finding:
    kind, options = _mount(where)
    if kind in _IN_MEMORY:
        return warn(name, f"{kind}: in memory: a reboot loses the data", "give a --data-dir on a disk")
    if kind in _REMOTE:
        return warn(
            name, f"{kind}: a network file system, where locks and fsync may not be reliable", "give a --data-dir on a local disk"
        )
    if "ro" in options:
        return fail(name, f"{kind}, mounted read-only", "mount it read-write, or give another --data-dir")
    return ok(name, kind)


def _sync_speed(name: str, where: Path) -> Finding:
    """The time of small synced writes is the least time of an acknowledgement."""
    times = []
    with tempfile.TemporaryFile(dir=where) as file:
        for _ in range(SYNCS):
            began = time.perf_counter()
            file.write(bytes(SYNC_BYTES))
            file.flush()
            os.fsync(file.fileno())
            times.append(time.perf_counter() - began)
    median, worst = statistics.median(times), max(times)
    latency = f"{median * 1000:.1f} ms for 4 KiB, {worst * 1000:.1f} ms at worst"
    if median > SYNC_S_GOOD:
        return warn(
            name,
            latency,
            "every acknowledgement waits for it: use a faster disk, or durability = os if a power cut may lose data",
        )
    return ok(name, latency)


def _existing(path: Path) -> Path:
    """The path, or the nearest folder above it that is there."""
    return next(folder for folder in (path, *path.parents) if folder.exists())


def _mount(where: Path) -> tuple[str, list[str]]:
    """The kind and options of the file system that a folder is on."""
    try:
        lines = _MOUNTS.read_text().splitlines()
    except OSError:
        return "unknown", []
    best = ("unknown", "", "")
    for line in lines:
        _, mounted, kind, options, *_ = line.split()
        mounted = mounted.replace("\\040", " ")
        if where.is_relative_to(mounted) and len(mounted) >= len(best[1]):
            best = kind, mounted, options
    return best[0], best[2].split(",")
