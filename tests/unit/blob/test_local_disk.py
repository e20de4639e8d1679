"""A real directory as a disk."""

from __future__ import annotations

import asyncio
import errno
import os
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random

import pytest

from penstock.blob import BlobId, Erasure, LocalDisk, LocalGroup, Status, local_disk
from penstock.blob.meta import DiskState
from penstock.blob.vdisk_host import OnFormed
from penstock.blob.write_pace import SLOW_S, SYNC_IN_PLACE_BYTES, WritePace
from penstock.core.clock import Clock, SystemClock
from penstock.core.errors import ConfigError
from tests.sim_group import BY_HAND, GROUP_ID, payload


def _on_disk(
    path: Path,
    scenario: Callable[[LocalDisk], Awaitable[None]],
    *,
    durable: bool = True,
    is_only: bool = False,
    clock: Clock | None = None,
) -> None:
    async def run() -> None:
        disk = await LocalDisk.open(path, durable=durable, is_only=is_only, clock=clock)
        try:
            await scenario(disk)
        finally:
            await disk.close()

    asyncio.run(run())


async def _store(disk: LocalDisk, name: str, data: bytes) -> None:
    disk.append(name, [data])
    if not disk.flush_at_once(name):
        await disk.flush(name)


def _open_descriptors(folder: Path) -> list[str]:
    found = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{fd}")
        except FileNotFoundError:
            continue
        if target.startswith(f"{folder}/"):
            found.append(target)
    return found


@pytest.mark.parametrize("durable", [True, False])
def test_what_is_flushed_is_in_the_file(tmp_path: Path, durable: bool) -> None:
    async def scenario(disk: LocalDisk) -> None:
        disk.append("log", [b"one ", bytearray(b"two "), memoryview(b"three")])
        await disk.flush("log")
        await _store(disk, "log", b" four")
        assert bytes(await disk.read("log", 4, 3)) == b"two"
        assert bytes(await disk.read("log", 14, 100)) == b"four"
        assert bytes(await disk.read("log", 99, 1)) == b""
        assert await disk.files() == {"log": 18}

    _on_disk(tmp_path, scenario, durable=durable)
    assert (tmp_path / "log").read_bytes() == b"one two three four"


def test_many_and_large_buffers_arrive_in_order(tmp_path: Path) -> None:
    random = Random(1)
    sizes = [1] * 3000 + [3 << 20, 10, (1 << 20) - 10, 20, 1 << 20, 5]
    buffers = [random.randbytes(size) for size in sizes]

    async def scenario(disk: LocalDisk) -> None:
        disk.append("log", buffers)
        await disk.flush("log")
        assert bytes(await disk.read("log", 0, sum(sizes))) == b"".join(buffers)

    _on_disk(tmp_path, scenario)


def test_a_file_is_listed_with_its_preallocated_tail_and_gives_it_back_when_complete(tmp_path: Path) -> None:
    async def scenario(disk: LocalDisk) -> None:
        disk.reserve("log", 1 << 16)
        await _store(disk, "log", b"begin")
        assert await disk.files() == {"log": 1 << 16}
        assert bytes(await disk.read("log", 0, 1 << 16)) == b"begin" + bytes((1 << 16) - 5)
        disk.reserve("log", 0)
        await _store(disk, "log", b" end")
        assert await disk.files() == {"log": 9}
        assert bytes(await disk.read("log", 0, 100)) == b"begin end"

    _on_disk(tmp_path, scenario)


def test_short_synced_writes_find_zeros_written_ahead_and_keep_what_they_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lengths: list[int] = []
    pwritev = os.pwritev

    def counted(fd: int, buffers: list[bytes], offset: int) -> int:
        lengths.append(sum(map(len, buffers)))
        return pwritev(fd, buffers, offset)

    monkeypatch.setattr(os, "pwritev", counted)
    records = [bytes([number]) * 1500 for number in range(1, 101)]

    async def scenario(disk: LocalDisk) -> None:
        disk.reserve("f", 1 << 20)
        for record in records:
            await _store(disk, "f", record)
        content = (tmp_path / "f").read_bytes()
        assert content[: 100 * 1500] == b"".join(records)
        assert not any(content[100 * 1500 :])
        disk.reserve("f", 0)
        await _store(disk, "f", b"end")
        assert (tmp_path / "f").read_bytes() == b"".join(records) + b"end"

    _on_disk(tmp_path, scenario, is_only=True)
    ahead = [length for length in lengths if length > 1500]
    assert ahead == [1500 + len(local_disk.ZEROS)] * 3, "150,000 bytes are three times so many zeros"


def test_a_deleted_file_is_gone_and_deleting_what_is_not_there_is_no_error(tmp_path: Path) -> None:
    async def scenario(disk: LocalDisk) -> None:
        await _store(disk, "log", b"data")
        await disk.delete("log")
        await disk.delete("log")
        assert await disk.files() == {}
        with pytest.raises(FileNotFoundError):
            await disk.read("log", 0, 1)

    _on_disk(tmp_path, scenario)


def test_a_file_of_an_earlier_opening_is_never_written_again(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"old")

    async def scenario(disk: LocalDisk) -> None:
        with pytest.raises(FileExistsError):
            await _store(disk, "log", b"new")
        with pytest.raises(OSError, match="go on in another file") as caught:
            await _store(disk, "log", b"new")
        assert caught.value.errno == errno.EIO

    _on_disk(tmp_path, scenario)
    assert (tmp_path / "log").read_bytes() == b"old"


def test_the_space_is_that_of_the_file_system(tmp_path: Path) -> None:
    async def scenario(disk: LocalDisk) -> None:
        space = await disk.space()
        stat = os.statvfs(tmp_path)
        assert space.total == stat.f_blocks * stat.f_frsize
        assert 0 < space.free <= space.total

    _on_disk(tmp_path, scenario)


def test_a_directory_in_use_is_refused_until_it_is_closed(tmp_path: Path) -> None:
    async def run() -> None:
        first = await LocalDisk.open(tmp_path)
        with pytest.raises(ConfigError, match=f"{tmp_path} is in use by a running process"):
            await LocalDisk.open(tmp_path)
        await first.close()
        await (await LocalDisk.open(tmp_path)).close()

    asyncio.run(run())


def test_a_directory_in_use_by_another_process_is_refused_until_that_dies(tmp_path: Path) -> None:
    script = (
        "import asyncio, sys, pathlib\n"
        "from penstock.blob import LocalDisk\n"
        "async def main():\n"
        "    disk = await LocalDisk.open(pathlib.Path(sys.argv[1]))\n"
        "    sys.stdout.write('open\\n'); sys.stdout.flush(); sys.stdin.read()\n"
        "asyncio.run(main())\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "open\n"
        with pytest.raises(ConfigError, match="is in use by a running process"):
            asyncio.run(LocalDisk.open(tmp_path))
        holder.kill()

    async def reopen() -> None:
        await (await LocalDisk.open(tmp_path)).close()

    asyncio.run(reopen())


@pytest.mark.parametrize("place", ["file", "below a file", "/proc/penstock"])
def test_a_place_that_cannot_be_written_is_a_clear_error(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_bytes(b"content")
    path = {"file": tmp_path / "file", "below a file": tmp_path / "file" / "disk"}.get(place, Path(place))
    with pytest.raises(ConfigError, match=f"cannot write to {path}: .*; name a directory that this user may write to"):
        asyncio.run(LocalDisk.open(path))
    assert (tmp_path / "file").read_bytes() == b"content"
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_a_piece_can_be_sent_without_passing_through_memory(tmp_path: Path) -> None:
    async def scenario(disk: LocalDisk) -> None:
        await _store(disk, "log", b"0123456789")
        piece = disk.piece("log", 3, 4)
        assert piece is not None
        with (tmp_path / "sent").open("wb") as out:
            assert os.sendfile(out.fileno(), piece.fd, piece.offset, piece.length) == 4

    _on_disk(tmp_path, scenario)
    assert (tmp_path / "sent").read_bytes() == b"3456"


def test_a_deleted_file_stays_readable_through_a_piece_that_is_held(tmp_path: Path) -> None:
    async def scenario(disk: LocalDisk) -> None:
        await _store(disk, "log", b"0123456789")
        piece = disk.piece("log", 3, 4)
        assert piece is not None
        await disk.delete("log")
        assert not (tmp_path / "log").exists()
        assert os.pread(piece.fd, piece.length, piece.offset) == b"3456"
        fd = piece.fd
        del piece
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(fd)

    _on_disk(tmp_path, scenario)


def test_a_bounded_number_of_files_is_open(tmp_path: Path) -> None:
    async def scenario(disk: LocalDisk) -> None:
        for number in range(3 * local_disk.OPEN_FILES_MAX):
            disk.reserve(f"{number}", 0)
            await _store(disk, f"{number}", b"data %d" % number)
        for number in range(3 * local_disk.OPEN_FILES_MAX):
            assert bytes(await disk.read(f"{number}", 0, 100)) == b"data %d" % number
            # Besides these, the lock and the file written last.
            assert len(_open_descriptors(tmp_path)) <= local_disk.OPEN_FILES_MAX + 2
        assert bytes(await disk.read("0", 0, 100)) == b"data 0"

    _on_disk(tmp_path, scenario)
    assert _open_descriptors(tmp_path) == []


@pytest.mark.parametrize("erasure", [Erasure.NONE, Erasure.BLOCK_4_2])
def test_a_blob_is_given_out_as_pieces_of_its_files(tmp_path: Path, erasure: Erasure) -> None:
    async def run() -> None:
        async def open_disk(order: int) -> LocalDisk:
            return await LocalDisk.open(tmp_path / str(order), durable=False)

        async def note_formed() -> None:
            pass

        clock = SystemClock()
        life = LocalGroup(GROUP_ID, 1, erasure, open_disk, clock=clock, random=Random(1), options=BY_HAND, on_formed=note_formed)
        await life.start()
        data = payload(200_000)
        blob_id = BlobId(1, 0, 1, 1, 0, len(data))
        assert life.proxy.pieces(blob_id, 0, len(data)) is None
        assert (await life.proxy.put(blob_id, data)).status is Status.OK
        await life.group.drain()
        for offset, length in [(0, len(data)), (0, 1), (199_999, 1), (49_000, 60_000), (123_456, 7)]:
            pieces = life.proxy.pieces(blob_id, offset, length)
            assert pieces is not None
            assert b"".join(os.pread(each.fd, each.length, each.offset) for each in pieces) == data[offset : offset + length]
        assert life.proxy.pieces(blob_id, 1, len(data)) is None
        assert life.proxy.pieces(blob_id._replace(size=5), 0, 5) is None
        await life.take_out(life.group.subgroup(blob_id.pack()[:21])[0])
        assert life.proxy.pieces(blob_id, 0, len(data)) is None
        await life.stop()

    asyncio.run(run())


@pytest.mark.parametrize("durable", [True, False])
def test_after_a_loss_of_power_only_disks_that_sync_are_held_to_what_they_said(tmp_path: Path, durable: bool) -> None:
    """With durability `os` all disks may lose the ends of their logs at once, and none is to be distrusted for that."""

    async def note_formed() -> None:
        pass

    def life(on_formed: OnFormed | None) -> LocalGroup:
        async def open_disk(order: int) -> LocalDisk:
            return await LocalDisk.open(tmp_path / str(order), durable=durable)

        clock = SystemClock()
        kind = Erasure.BLOCK_4_2
        return LocalGroup(GROUP_ID, 1, kind, open_disk, clock=clock, random=Random(1), options=BY_HAND, on_formed=on_formed)

    async def write() -> None:
        group = life(note_formed)
        await group.start()
        for step in range(10):
            assert (await group.proxy.put(BlobId(1, 0, 1, step, 0, 1000), bytes(1000))).status is Status.OK
        await group.group.drain()
        for _ in range(2):
            await group.sync()
        await group.stop()

    async def states() -> set[DiskState]:
        group = life(None)
        await group.start()
        found = {vdisk.index.state for vdisk in group.vdisks.values()}
        await group.stop()
        return found

    asyncio.run(write())
    assert asyncio.run(states()) == {DiskState.COMPLETE}
    for order in range(1, 8):
        chunk = max((tmp_path / str(order)).glob("*.chunk"))
        os.truncate(chunk, chunk.stat().st_size // 2)
    assert asyncio.run(states()) == ({DiskState.COMPLETE, DiskState.FRESH} if durable else {DiskState.COMPLETE})


class _Writes(SystemClock):
    """Which threads have written, and a clock by which each write takes as long as is said here."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.threads: list[str] = []
        self.delay_s = self.now = 0.0
        write = os.pwritev

        def noted(fd: int, buffers: list[bytes], offset: int) -> int:
            self.threads.append(threading.current_thread().name)
            self.now += self.delay_s
            return write(fd, buffers, offset)

        monkeypatch.setattr(os, "pwritev", noted)

    def monotonic(self) -> float:
        return self.now

    @property
    def by_the_loop(self) -> list[bool]:
        """Of each write, whether no thread was asked for it."""
        return [name == threading.main_thread().name for name in self.threads]


def test_a_small_write_that_is_not_synced_waits_for_no_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writes = _Writes(monkeypatch)

    async def scenario(disk: LocalDisk) -> None:
        disk.reserve("a", 1 << 20)
        await _store(disk, "a", b"first, which makes the file")
        await _store(disk, "a", b"small")
        await _store(disk, "a", bytes(local_disk.WRITE_AT_ONCE_BYTES + 1))
        await _store(disk, "a", b"small")
        assert await disk.read("a", 0, 32) == b"first, which makes the filesmall"

    _on_disk(tmp_path / "memory", scenario, durable=False, clock=writes)
    assert writes.by_the_loop == [False, True, False, True]
    _on_disk(tmp_path / "disk", scenario)
    assert not any(writes.by_the_loop[4:]), "until it is known how long a sync takes"


def test_after_two_slow_writes_in_a_row_the_thread_has_the_next_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writes = _Writes(monkeypatch)
    writes.delay_s = 2 * SLOW_S

    async def scenario(disk: LocalDisk) -> None:
        disk.reserve("a", 1 << 20)
        for _ in range(5):
            await _store(disk, "a", b"small")

    _on_disk(tmp_path / "memory", scenario, durable=False, clock=writes)
    assert writes.by_the_loop == [False, True, False, False, False]


def test_a_slow_write_between_quick_ones_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writes = _Writes(monkeypatch)

    async def scenario(disk: LocalDisk) -> None:
        disk.reserve("a", 1 << 20)
        for turn in range(7):
            writes.delay_s = 2 * SLOW_S if turn % 2 else 0.0
            await _store(disk, "a", b"small")

    _on_disk(tmp_path / "memory", scenario, durable=False, clock=writes)
    assert writes.by_the_loop == [False, *[True] * 6]


def test_a_small_write_that_fails_leaves_the_end_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(disk: LocalDisk) -> None:
        disk.reserve("a", 1 << 20)
        await _store(disk, "a", b"one")

        def full(*_: object) -> int:
            raise OSError(errno.ENOSPC, "no space")

        monkeypatch.setattr(os, "pwritev", full)
        with pytest.raises(OSError, match="no space"):
            await _store(disk, "a", b"two")
        monkeypatch.undo()
        with pytest.raises(OSError, match="its end is unknown"):
            await _store(disk, "a", b"three")

    _on_disk(tmp_path, scenario, durable=False)


class _HungSync:
    """Syncs files in the place of SyncThread, and is never done in time; then it may fail."""

    error: OSError | None = None

    def __init__(self, _: str) -> None:
        self.is_busy = False

    def sync(self, fd: int, wait_s: float) -> bool:
        self.is_busy = True
        return False

    def finish(self) -> None:
        assert threading.current_thread() is not threading.main_thread()
        self.is_busy = False
        if self.error is not None:
            raise self.error

    def stop(self) -> None: ...


@pytest.mark.parametrize("error", [None, OSError(errno.EIO, "no answer")])
def test_a_sync_that_the_loop_does_not_wait_for_is_finished_by_the_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError | None
) -> None:
    monkeypatch.setattr(local_disk, "SyncThread", _HungSync)
    monkeypatch.setattr(_HungSync, "error", error)

    async def scenario(disk: LocalDisk) -> None:
        long = b"2" * (SYNC_IN_PLACE_BYTES + 1)
        disk.reserve("a", 1 << 20)
        await _store(disk, "a", b"one")
        disk._pace = WritePace(slow_max=1)  # as of a disk that was quick until now
        disk.append("a", [long])
        assert not disk.flush_at_once("a")
        assert disk.probe.writes == 1, "not before it is synced"
        disk.append("a", [b"three"])
        assert not disk.flush_at_once("a"), "not while a sync is in flight"
        if error is None:
            await disk.flush("a")
            assert bytes(await disk.read("a", 0, len(long) + 8)) == b"one" + long + b"three"
            assert disk.probe.writes == 3
        else:
            with pytest.raises(OSError, match="no answer"):
                await disk.flush("a")
            with pytest.raises(OSError, match="its end is unknown"):
                await disk.flush("a")

    _on_disk(tmp_path, scenario, is_only=True)


@pytest.mark.parametrize("is_only", [True, False])
def test_only_the_only_disk_is_synced_by_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_only: bool) -> None:
    writes = _Writes(monkeypatch)

    async def scenario(disk: LocalDisk) -> None:
        disk.reserve("a", 1 << 20)
        for _ in range(40):
            await _store(disk, "a", b"small")

    _on_disk(tmp_path, scenario, clock=writes, is_only=is_only)
    assert not writes.by_the_loop[0]
    assert writes.by_the_loop[-1] == is_only
