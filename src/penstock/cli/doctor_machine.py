"""What `penstock doctor` says about the machine: clock, limits of the process, memory, processors, its name."""

from __future__ import annotations

import ctypes
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import penstock
from penstock.cli.doctor_finding import EVERYWHERE, Finding, fail, ok, size, warn
from penstock.server import NodeConfig
from penstock.server.open_files import open_files_limit

FILES_MIN: Final = 1024
FILES_GOOD: Final = 8192
MEMORY_BESIDE_CACHE: Final = 256 << 20
CLOCK_WATCH_S: Final = 0.2
CLOCK_DRIFT_S: Final = 0.05
_UNSYNCHRONISED: Final = 0x40
_TIMEX_BYTES: Final = 512  # more than any kernel fills in
_CGROUP: Final = Path("/sys/fs/cgroup")


def check_machine(config: NodeConfig) -> Iterator[Finding]:
    """All of it."""
    yield _clock()
    yield _synchronisation()
    yield _open_files()
    yield _memory(config)
    yield _processors()
    yield _host_name(config)


def _clock() -> Finding:
    """Retention goes by the wall clock, deadlines by the other one. Zones do not matter: only UTC is stored."""
    wall, steady = time.time(), time.monotonic()
    time.sleep(CLOCK_WATCH_S)
    drift = abs((time.time() - wall) - (time.monotonic() - steady))
    shown = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    installed_at = Path(penstock.__file__).stat().st_mtime
    if time.time() < installed_at - 86400:
        return fail("clock", f"{shown} is before this package was installed", "set the clock; retention depends on it")
    if drift > CLOCK_DRIFT_S:
        return warn("clock", f"{shown}; it moved {drift * 1000:.0f} ms against the steady clock", "check what adjusts the clock")
    return ok("clock", f"{shown}; steady")


def _synchronisation() -> Finding:
    """As the kernel was told by whichever daemon keeps the clock."""
    try:
        state = ctypes.create_string_buffer(_TIMEX_BYTES)
        answer = ctypes.CDLL(None, use_errno=True).adjtimex(state)
    except (AttributeError, OSError):
        return ok("time service", "unknown on this system")
    if answer < 0:
        return ok("time service", f"cannot be told here: {os.strerror(ctypes.get_errno())}")
    # struct timex: modes 4, padding, then offset, freq, maxerror, esterror as longs, then status 4.
    long_bytes = ctypes.sizeof(ctypes.c_long)
    at = 5 * long_bytes
    status = int.from_bytes(state.raw[at : at + 4], "little")
    if status & _UNSYNCHRONISED:
        return warn("time service", "the kernel reports that the clock is not synchronised", "run chrony or systemd-timesyncd")
    return ok("time service", "the clock is synchronised")


def _open_files() -> Finding:
    """By the hard limit: a node raises the soft one to it."""
    limit = open_files_limit()
    limit_text = f"{limit:,} open files allowed"
    advice = "raise the hard limit: LimitNOFILE=65536 in the systemd unit, ulimit -Hn 65536 as root"
    if limit < FILES_MIN:
        return fail("open files", limit_text, advice)
    if limit < FILES_GOOD:
        return warn("open files", f"{limit_text}: enough for a few hundred clients", advice)
    return ok("open files", limit_text)


def _memory(config: NodeConfig) -> Finding:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = _memory_limit()
    available = total if limit is None else min(total, limit)
    memory_text = size(total) + (
        f", of which this control group may use {size(limit)}" if limit is not None and limit < total else ""
    )
    wanted = config.cache_bytes + config.compaction_map_bytes + MEMORY_BESIDE_CACHE
    if available < wanted:
        return warn(
            "memory", memory_text, f"a node with this configuration may use {size(wanted)}: lower cache_bytes, or allow it more"
        )
    return ok("memory", memory_text)


def _memory_limit() -> int | None:
    for path in (_CGROUP / "memory.max", _CGROUP / "memory" / "memory.limit_in_bytes"):
        try:
            text = path.read_text().strip()
        except OSError:
            continue
        return int(text) if text.isdigit() else None
    return None


def _processors() -> Finding:
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = (_CGROUP / "cpu.max").read_text().split()
        share = int(quota) / int(period) if quota != "max" else None
    except (OSError, ValueError):
        share = None
    if share is not None and share < 1:
        return warn(
            "processors", f"{count}, of which {share:.1f} may be used", "allow at least one CPU; a busy node uses one fully"
        )
    return ok("processors", f"{count}" + (f", of which {share:.1f} may be used" if share is not None else ""))


def _host_name(config: NodeConfig) -> Finding:
    """What clients are told to connect to must be found by them; that it is found here is the least."""
    if config.advertised_host is not None:
        name, advice = config.advertised_host, "correct advertised_host: clients connect to it"
    elif config.host in EVERYWHERE:
        name, advice = socket.gethostname(), "set advertised_host: without it clients connect to this machine's name"
    else:
        name, advice = config.host, "correct host: the node listens on it"
    try:
        address = socket.getaddrinfo(name, None)[0][4][0]
    except OSError as error:
        return fail("host name", f"{name} is not found: {error.strerror}", advice)
    return ok("host name", f"clients are told {name}" + (f", here {address}" if address != name else ""))
