"""A `Disk` in memory with latency, faults and crashes that tear whatever no flush has covered.

`SimPlatter` is the medium and outlives processes; `SimDisk` is one opening of it, with its own queue of appends. An operation
takes effect at the instant it completes, whether or not its caller still waits, as it would on a device. One that is in flight
when the disk crashes never reports success.
"""

from __future__ import annotations

import asyncio
import enum
import errno
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, TypeVar

from penstock.blob.disk import Buffer, DiskSpace, FilePiece
from penstock.testing.sim_loop import SimCrashed, SimulationError, current_process

_T = TypeVar("_T")

SECTOR_SIZE = 512
_CAPACITY = 1 << 40

TIMEOUT_S = 15.0
_HANG_STEP_S = 0.5

Operation = Literal["files", "flush", "read", "delete", "space", "check"]


class Tear(enum.Enum):
    """What a crash leaves of the bytes of a file that no flush had covered."""

    NOTHING = "nothing"
    PREFIX = "prefix"
    ALL = "all"
    SECTORS = "sectors"


@dataclass(slots=True)
class DiskFaults:
    """What is wrong with the disk now; a test changes it while the disk runs and may hand it on to the next incarnation."""

    broken: bool = False
    hung: bool = False  # calls answer nothing, until they are overdue and from then on fail at once
    gone: bool = False  # the files were deleted or unmounted under their owner
    error_rate: dict[Operation, float] = field(default_factory=dict)
    slow_factor: float = 1.0
    throughput: float | None = None  # bytes a second; then reads and flushes are done one after another
    capacity: int = _CAPACITY
    tears: tuple[Tear, ...] = tuple(Tear)


@dataclass(frozen=True, slots=True)
class Latency:
    """Seconds an operation takes: `base_s` plus a uniform draw up to `jitter_s`."""

    base_s: float
    jitter_s: float = 0.0


DEFAULT_LATENCY: dict[Operation, Latency] = {
    "files": Latency(0.0002, 0.0002),
    "flush": Latency(0.001, 0.002),
    "read": Latency(0.0001, 0.0004),
    "delete": Latency(0.0005, 0.001),
    "space": Latency(0.0001),
    "check": Latency(0.0001),
}


class SimPlatter:
    """The durable bytes of a disk. With `zero_tail`, files without a reservation grow in steps of so many bytes, zeros ahead of
    what is written, as on a disk that sets room aside unasked."""

    def __init__(self, *, zero_tail: int = 0) -> None:
        self._zero_tail = zero_tail
        self._contents: dict[str, bytearray] = {}
        self._reserved: dict[str, int] = {}
        self._holder: SimDisk | None = None

    @property
    def used(self) -> int:
        """Bytes taken, zero tails included."""
        return sum(self.size(name) for name in self._contents)

    def exists(self, name: str) -> bool:
        return name in self._contents

    def names(self) -> list[str]:
        return sorted(self._contents)

    def snapshot(self) -> dict[str, bytes]:
        """Every file's durable bytes, without zero tails."""
        return {name: bytes(self._contents[name]) for name in self.names()}

    def written(self, name: str) -> int:
        """Bytes of the file up to its zero tail; 0 if there is no such file."""
        return len(self._contents.get(name, b""))

    def size(self, name: str) -> int:
        """Bytes of the file with its zero tail."""
        written = self.written(name)
        reserved = self._reserved.get(name)
        return self._rounded(written) if reserved is None else max(written, reserved)

    def fitting(self, name: str, length: int, capacity: int) -> int:
        """How many of so many bytes appended to the file there is room for, the zero tail they bring along included."""
        size_max = self.size(name) + max(0, capacity - self.used)
        if self._zero_tail and name not in self._reserved:
            size_max -= size_max % self._zero_tail
        return min(length, size_max - self.written(name))

    def read(self, name: str, offset: int, length: int) -> bytes:
        content = self._contents.get(name)
        if content is None:
            raise FileNotFoundError(errno.ENOENT, "no such file on the simulated disk", name)
        data = bytes(content[offset : offset + length])
        return data + bytes(max(0, min(offset + length, self.size(name)) - offset - len(data)))

    def write(self, name: str, data: bytes) -> None:
        """Put bytes after what is written, creating the file."""
        self._contents.setdefault(name, bytearray()).extend(data)

    def reserve(self, name: str, length: int, capacity: int) -> None:
        """Let the file end in zeros up to this length, if there is room for them; 0 ends it where it is written."""
        if length == 0 or self.used - self.size(name) + length <= capacity:
            self._reserved[name] = length

    def remove(self, name: str) -> None:
        self._contents.pop(name, None)
        self._reserved.pop(name, None)

    def wipe(self) -> None:
        """Lose everything, as when the disk is replaced. It must not be open."""
        self._require_idle("wiped")
        self._contents.clear()
        self._reserved.clear()

    def rot(self, rng: random.Random, name: str | None = None, offset: int | None = None, *, length: int = 1) -> tuple[str, int]:
        """Spoil durable bytes and say where: one flipped bit, or `length` > 1 bytes none of which stays as it was.

        What is not chosen is drawn, each written byte being equally likely.
        """
        if name is None:
            candidates = [each for each in self.names() if self._contents[each]]
            name = rng.choices(candidates, [len(self._contents[each]) for each in candidates])[0]
        content = self._contents[name]
        if offset is None:
            offset = rng.randrange(len(content))
        if not 0 <= offset < len(content):
            raise ValueError(f"offset {offset} is outside the {len(content)} written bytes of {name}")
        for place in range(offset, min(offset + length, len(content))):
            content[place] ^= 1 << rng.randrange(8) if length == 1 else rng.randint(1, 255)
        return name, offset

    def acquire(self, holder: SimDisk) -> None:
        """Lock the platter for one incarnation. Zero tails of the last one become bytes: the file ends after them now."""
        if self._holder is not None:
            raise BlockingIOError(errno.EAGAIN, "the simulated disk is open already; crash or close that incarnation first")
        self._holder = holder
        for name, content in self._contents.items():
            content.extend(bytes(self.size(name) - len(content)))
        # A file that was completed stays so.
        self._reserved = {name: 0 for name, length in self._reserved.items() if length == 0}

    def release(self, holder: SimDisk) -> None:
        if self._holder is holder:
            self._holder = None

    def _rounded(self, size: int) -> int:
        return -(-size // self._zero_tail) * self._zero_tail if self._zero_tail else size

    def _require_idle(self, action: str) -> None:
        if self._holder is not None:
            raise SimulationError(f"the platter cannot be {action} while a disk has it open; crash or close it first")


@dataclass(slots=True)
class _Queue:
    """The bytes of a file no flush has covered: appended ones, and those of the flush in progress."""

    # Each buffer as the caller gave it, with a copy to prove that it did not change before its flush returned.
    appended: list[tuple[Buffer, bytes]] = field(default_factory=list)
    flushing: list[tuple[Buffer, bytes]] | None = None
    reservation: int | None = None
    reserving: int | None = None
    failed: bool = False

    def unflushed(self) -> bytes:
        return b"".join(copy for _, copy in [*(self.flushing or []), *self.appended])


class SimDisk:
    """One incarnation of a disk, after the `Disk` protocol. Opened by code of a `SimProcess`, it crashes with it.

    After a crash every operation raises `SimCrashed`; after a close, `OSError` with `EBADF`. Bytes left unflushed at a close
    fare as in a crash, since they were not acknowledged.
    """

    def __init__(
        self,
        platter: SimPlatter,
        rng: random.Random,
        faults: DiskFaults | None = None,
        latency: dict[Operation, Latency] | None = None,
        *,
        at_once_rate: float = 0.0,
    ) -> None:
        """`at_once_rate` of flushes that may be done at once are."""
        platter.acquire(self)
        self.platter = platter
        self.faults = faults if faults is not None else DiskFaults()
        self._random = rng
        self._latency = DEFAULT_LATENCY | (latency or {})
        self._queues: dict[str, _Queue] = {}
        self._deleting: list[str] = []
        self._overdue = 0
        self._busy_until = 0.0
        self._at_once_rate = at_once_rate
        self._state: Literal["open", "closed", "crashed"] = "open"
        process = current_process()
        if process is not None:
            process.on_crash(self.crash)

    # The protocol.

    outlives_power_loss = True
    boot = 1

    async def files(self) -> dict[str, int]:
        return await self._perform("files", self._list)

    def reserve(self, name: str, length: int) -> None:
        self._require_open()
        self._queue(name).reservation = length

    def append(self, name: str, buffers: Sequence[Buffer], finish: Sequence[Callable[[], None]] = ()) -> None:
        self._require_open()
        for fill in finish:
            fill()
        self._queue(name).appended.extend((buffer, bytes(buffer)) for buffer in buffers)

    async def flush(self, name: str) -> None:
        self._require_open()
        queue = self._queues.get(name) or _Queue()
        if queue.flushing is not None:
            raise RuntimeError(f"two flushes of {name} at a time: the second must wait for the first")
        queue.flushing, queue.appended = queue.appended, []
        queue.reserving, queue.reservation = queue.reservation, None
        size = sum(len(copy) for _, copy in queue.flushing)
        await self._perform("flush", lambda: self._finish_flush(name, queue), lambda: self._fail_flush(name, queue), size)

    def flush_at_once(self, name: str) -> bool:
        """Sometimes, while nothing is wrong with the disk, as a quick disk does."""
        if not self._is_quick("flush") or self._random.random() >= self._at_once_rate:
            return False
        queue = self._queues.get(name) or _Queue()
        if queue.flushing is not None:
            raise RuntimeError(f"two flushes of {name} at a time: the second must wait for the first")
        queue.flushing, queue.appended = queue.appended, []
        queue.reserving, queue.reservation = queue.reservation, None
        try:
            self._finish_flush(name, queue)
        except OSError:
            self._fail_flush(name, queue)
            raise
        return True

    async def read(self, name: str, offset: int, length: int) -> bytes:
        if offset < 0 or length < 0:
            raise ValueError(f"a range cannot start at {offset} with length {length}")
        return await self._perform("read", lambda: self._read(name, offset, length), size=length)

    def read_at_hand(self, name: str, offset: int, length: int) -> bytes | None:
        """Sometimes, while nothing is wrong with the disk."""
        if not self._is_quick("read") or self._random.random() >= self._at_once_rate:
            return None
        return self._read(name, offset, length)

    async def delete(self, name: str) -> None:
        self._require_open()
        self._deleting.append(name)
        await self._perform("delete", lambda: self._finish_delete(name), lambda: self._deleting.remove(name))

    async def space(self) -> DiskSpace:
        return await self._perform("space", lambda: DiskSpace(self.faults.capacity, self._room()))

    async def check(self) -> None:
        await self._perform("check", self._check_place)

    def piece(self, name: str, offset: int, length: int) -> FilePiece | None:
        return None

    async def close(self) -> None:
        if self._state == "crashed":
            raise SimCrashed
        self._end("closed")

    # Crashing.

    def crash(self) -> None:
        """Lose power: tear what is unflushed, leave each deletion in flight done or undone, free the platter."""
        self._end("crashed")

    def _end(self, state: Literal["closed", "crashed"]) -> None:
        if self._state != "open":
            return
        self._state = state
        for name, queue in self._queues.items():
            self._tear(name, queue.unflushed())
            if queue.reserving is not None and self.platter.exists(name) and self._random.random() < 0.5:
                self.platter.reserve(name, queue.reserving, self.faults.capacity)
        for name in self._deleting:
            if self._random.random() < 0.5:
                self.platter.remove(name)
        self.platter.release(self)

    def _tear(self, name: str, data: bytes) -> None:
        """Keep of the data what chance decides, always after the bytes already durable."""
        tear = self._random.choice(self.faults.tears)
        start = self.platter.written(name)
        kept = b""
        if tear is Tear.ALL:
            kept = data
        elif tear is Tear.PREFIX:
            kept = data[: self._random.randint(0, len(data))]
        elif tear is Tear.SECTORS:
            kept = _torn_sectors(self._random, data, start)
        kept = kept[: self._fitting(name, len(kept))]
        # A new file of which nothing was kept may be there, empty, or not at all.
        if kept or (data and self._random.random() < 0.5):
            self.platter.write(name, kept)

    # How an operation goes.

    async def _perform(
        self, operation: Operation, effect: Callable[[], _T], undo: Callable[[], object] | None = None, size: int = 0
    ) -> _T:
        """Wait the latency out, then apply the effect or fail; a caller that is cancelled meanwhile does not stop it."""
        self._require_open()
        loop = asyncio.get_running_loop()
        done: asyncio.Future[_T] = loop.create_future()
        latency = self._latency[operation]
        delay_s = (latency.base_s + self._random.uniform(0, latency.jitter_s)) * self.faults.slow_factor
        if self.faults.throughput and size:
            self._busy_until = max(self._busy_until, loop.time()) + delay_s + size / self.faults.throughput
            delay_s = self._busy_until - loop.time()
        if self._overdue:
            if undo is not None:
                undo()
            raise OSError(errno.ETIMEDOUT, f"the simulated disk hangs in {self._overdue} calls")
        loop.call_later(delay_s, self._complete, operation, effect, undo, done)
        result = await done
        if self._state == "crashed":
            raise SimCrashed
        return result

    def _expire(self, operation: Operation, done: asyncio.Future[_T]) -> None:
        if not done.done():
            self._overdue += 1
            done.set_exception(OSError(errno.ETIMEDOUT, f"the simulated disk hangs in {operation}"))

    def _complete(
        self,
        operation: Operation,
        effect: Callable[[], _T],
        undo: Callable[[], object] | None,
        done: asyncio.Future[_T],
        *,
        hangs: bool = False,
    ) -> None:
        if self.faults.hung and self._state == "open":
            loop = asyncio.get_running_loop()
            loop.call_later(_HANG_STEP_S, partial(self._complete, operation, effect, undo, done, hangs=True))
            if not hangs:
                loop.call_later(TIMEOUT_S, self._expire, operation, done)
            return
        if done.done() and not done.cancelled() and isinstance(done.exception(), TimeoutError):
            # It comes back after its caller has given it up: of a write, part may have arrived.
            self._overdue -= 1
            if undo is not None and self._state == "open":
                undo()
            return
        try:
            self._require_open()
            try:
                self._strike(operation)
                result = effect()
            except OSError:
                if undo is not None:
                    undo()
                raise
        except BaseException as error:  # noqa: BLE001 - whatever it is, it belongs to the waiting caller
            if not done.done():
                done.set_exception(error)
        else:
            if not done.done():
                done.set_result(result)

    def _strike(self, operation: Operation) -> None:
        rate = self.faults.error_rate.get(operation, 0.0)
        if self.faults.broken or (rate and self._random.random() < rate):
            raise OSError(errno.EIO, f"injected fault in {operation}")

    def _is_quick(self, operation: Operation) -> bool:
        """Whether an operation may be done at once: nothing is wrong with the disk."""
        self._require_open()
        faults = self.faults
        is_wrong = faults.broken or faults.hung or faults.gone or self._overdue or faults.error_rate.get(operation)
        return bool(self._at_once_rate) and not is_wrong and faults.throughput is None

    def _require_open(self) -> None:
        if self._state == "crashed":
            raise SimCrashed
        if self._state == "closed":
            raise OSError(errno.EBADF, "the simulated disk is closed")

    # What the operations do to the platter.

    def _list(self) -> dict[str, int]:
        begun = {name for name, queue in self._queues.items() if queue.appended or queue.flushing}
        return {name: self.platter.size(name) for name in sorted(begun.union(self.platter.names()))}

    def _check_place(self) -> None:
        if self.faults.gone:
            raise FileNotFoundError(errno.ENOENT, "the simulated disk was unmounted")

    def _read(self, name: str, offset: int, length: int) -> bytes:
        queue = self._queues.get(name)
        if queue is not None and (queue.appended or queue.flushing) and not self.platter.exists(name):
            return b""
        return self.platter.read(name, offset, length)

    def _finish_flush(self, name: str, queue: _Queue) -> None:
        if queue.failed:
            raise OSError(errno.EIO, f"an earlier flush of {name} failed, its tail is unknown; go on in another file")
        batch = queue.flushing or []
        for buffer, copy in batch:
            if bytes(buffer) != copy:
                raise AssertionError(f"a buffer appended to {name} changed before its flush returned")
        data = b"".join(copy for _, copy in batch)
        if self._fitting(name, len(data)) < len(data):
            raise OSError(errno.ENOSPC, f"the simulated disk is full: {len(data)} bytes for {name} do not fit")
        reservation, queue.reserving = queue.reserving, None
        queue.flushing = None
        if self._queues.get(name) is not queue:
            return
        self.platter.write(name, data)
        if reservation is not None:
            self.platter.reserve(name, reservation, self.faults.capacity)

    def _fail_flush(self, name: str, queue: _Queue) -> None:
        """Leave a prefix of the batch behind, as a device might, and never again a good flush of this file."""
        data = b"".join(copy for _, copy in queue.flushing or [])
        queue.flushing = None
        queue.reserving = None
        if queue.failed or self._queues.get(name) is not queue:
            return
        queue.failed = True
        kept = data[: self._random.randint(0, self._fitting(name, len(data)))]
        if kept:
            self.platter.write(name, kept)

    def _finish_delete(self, name: str) -> None:
        self._deleting.remove(name)
        self._queues.pop(name, None)
        self.platter.remove(name)

    def _queue(self, name: str) -> _Queue:
        return self._queues.setdefault(name, _Queue())

    def _room(self) -> int:
        return max(0, self.faults.capacity - self.platter.used)

    def _fitting(self, name: str, length: int) -> int:
        return self.platter.fitting(name, length, self.faults.capacity)


def _torn_sectors(rng: random.Random, data: bytes, start: int) -> bytes:
    """The data as a device may leave it: each sector written, zero or garbage, and the end anywhere on a sector boundary."""
    kept = bytearray()
    place = 0
    while place < len(data):
        end = min(len(data), place + SECTOR_SIZE - (start + place) % SECTOR_SIZE)
        fate = rng.randrange(3)
        kept += data[place:end] if fate == 0 else bytes(end - place) if fate == 1 else rng.randbytes(end - place)
        place = end
        if rng.random() < 1 / 16:
            break
    return bytes(kept)
