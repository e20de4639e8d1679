"""A local disk that hangs, fails in unexpected ways, or is deleted under the process: an error in time, and never a false OK."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import shutil
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.blob import LocalDisk
from penstock.blob.disk_threads import DiskThreads
from penstock.blob.journal import Journal
from penstock.blob.record import NO_ID, RecordKind
from penstock.core.errors import ConfigError

# Short for disks that are to hang; others get as long as a loaded machine may take.
TIMEOUT_S = 0.5
PATIENT_S = 60.0


class Hang:
    """Makes a call of the operating system wait until it is released."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
        self.released = threading.Event()
        original = getattr(os, call)

        def hang(*arguments: object, **named: object) -> object:
            assert self.released.wait(30)
            return original(*arguments, **named)

        monkeypatch.setattr(os, call, hang)


@pytest.fixture
def hang_sync(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hang]:
    """From now on no sync returns."""
    hang = Hang(monkeypatch, "fdatasync")
    yield hang
    hang.released.set()


async def _store(disk: LocalDisk, name: str, data: bytes) -> None:
    disk.append(name, [data])
    await disk.flush(name)


async def _open(path: Path, *, durable: bool = True, timeout_s: float = PATIENT_S) -> LocalDisk:
    return await LocalDisk.open(path, durable=durable, timeout_s=timeout_s)


async def _come_back(threads: DiskThreads) -> None:
    for _ in range(1000):
        if not threads.is_hung:
            return
        await asyncio.sleep(0.01)
    raise AssertionError("the threads do not come back")


def test_a_sync_that_hangs_fails_in_time_then_at_once_and_the_disk_comes_back(tmp_path: Path, hang_sync: Hang) -> None:
    async def run() -> None:
        disk = await _open(tmp_path, timeout_s=TIMEOUT_S)
        with pytest.raises(TimeoutError, match="has not answered"):
            await asyncio.wait_for(_store(disk, "a", b"one"), 20)
        disk.append("b", [b"two"])
        flush = disk.flush("b")
        with pytest.raises(TimeoutError, match="has not answered"):
            flush.send(None)  # it fails without being waited for
        with pytest.raises(OSError, match="its end is unknown"):
            await _store(disk, "a", b"more")
        assert disk.probe.writes == 0
        hang_sync.released.set()
        await _come_back(disk._writer)
        await _store(disk, "c", b"three")
        assert await disk.read("c", 0, 5) == b"three"
        await disk.close()

    asyncio.run(run())


def test_a_hung_disk_is_closed_in_time_and_keeps_its_lock(tmp_path: Path, hang_sync: Hang) -> None:
    async def run() -> None:
        disk = await _open(tmp_path, timeout_s=TIMEOUT_S)
        with pytest.raises(TimeoutError):
            await _store(disk, "a", b"one")
        await asyncio.wait_for(disk.close(), 20)
        with pytest.raises(ConfigError, match="in use"):
            await _open(tmp_path, timeout_s=TIMEOUT_S)

    asyncio.run(run())


def test_a_hung_directory_is_an_error_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hang = Hang(monkeypatch, "scandir")

    async def run() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(_open(tmp_path, timeout_s=TIMEOUT_S), 20)
        hang.released.set()
        await (await _open(tmp_path, timeout_s=TIMEOUT_S)).close()

    asyncio.run(run())


def test_reads_that_hang_fail_in_time_and_writes_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        disk = await _open(tmp_path, timeout_s=TIMEOUT_S)
        await _store(disk, "a", b"one")
        disk._can_ask_at_hand = False
        hang = Hang(monkeypatch, "pread")
        results = await asyncio.gather(*(disk.read("a", 0, 3) for _ in range(5)), return_exceptions=True)
        assert all(isinstance(result, TimeoutError) for result in results)
        assert disk.piece("a", 0, 3) is None
        await _store(disk, "a", b"two")
        hang.released.set()
        await _come_back(disk._readers)
        assert await disk.read("a", 0, 6) == b"onetwo"
        await disk.close()

    asyncio.run(run())


def test_a_deletion_that_hangs_fails_in_time_and_no_write_waits_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        disk = await _open(tmp_path, durable=False, timeout_s=TIMEOUT_S)
        disk.reserve("old", 0)
        await _store(disk, "old", b"one")
        await _store(disk, "new", b"two")
        hang = Hang(monkeypatch, "unlink")
        deletion = asyncio.ensure_future(disk.delete("old"))
        await asyncio.sleep(0)
        disk.append("new", [b"three"])
        assert disk.flush_at_once("new")
        await _store(disk, "new", b"four")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(deletion, 20)
        hang.released.set()
        await _come_back(disk._remover)
        assert set(await disk.files()) == {"new"}
        await disk.close()

    asyncio.run(run())


def test_a_file_is_deleted_only_after_a_write_to_it_that_hung(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        disk = await _open(tmp_path, timeout_s=TIMEOUT_S)
        await _store(disk, "other", b"data")
        hang = Hang(monkeypatch, "open")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(_store(disk, "a", b"one"), 20)
        with pytest.raises(TimeoutError):
            await disk.delete("a")  # it would be made after this
        hang.released.set()
        await _come_back(disk._writer)
        await disk.delete("a")
        assert set(await disk.files()) == {"other"}
        await disk.close()

    asyncio.run(run())


@pytest.mark.parametrize("durable", [True, False])
def test_an_unexpected_error_while_writing_fails_the_write_and_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, durable: bool
) -> None:
    def broken(*_: object) -> int:
        raise RuntimeError("no such device driver")

    async def run() -> None:
        disk = await _open(tmp_path, durable=durable)
        journal = Journal(disk, first_chunk=1, chunk_size=1 << 20, head=b"head", on_seal=lambda *_: None)
        journal.append(RecordKind.META, NO_ID, b"first")
        assert await journal.commit() is None
        with monkeypatch.context() as patch:
            patch.setattr(os, "pwritev", broken)
            journal.append(RecordKind.META, NO_ID, b"second")
            error = await asyncio.wait_for(journal.commit(), 20)
        assert error is not None
        assert error.errno == errno.EIO
        assert "no such device driver" in str(error)
        journal.append(RecordKind.META, NO_ID, b"third")
        assert await journal.commit() is None
        await journal.close()
        await disk.close()

    with caplog.at_level(logging.ERROR):
        asyncio.run(run())
    assert "no such device driver" in caplog.text


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("again", [False, True], ids=["deleted", "deleted and made again"])
def test_a_write_to_a_deleted_directory_is_never_acknowledged(tmp_path: Path, durable: bool, again: bool) -> None:
    async def run() -> None:
        folder = tmp_path / "disk"
        disk = await _open(folder, durable=durable)
        disk.reserve("a", 1 << 20)
        await _store(disk, "a", b"one")
        await disk.check()
        shutil.rmtree(folder)
        if again:
            folder.mkdir()
        with pytest.raises(FileNotFoundError, match="deleted under the running process"):
            await _store(disk, "a", b"two")
        with pytest.raises(FileNotFoundError):
            await _store(disk, "b", b"three")
        with pytest.raises(FileNotFoundError, match="was deleted, moved or unmounted"):
            await disk.check()
        await disk.close()

    asyncio.run(run())


def test_a_directory_that_was_moved_is_noticed(tmp_path: Path) -> None:
    async def run() -> None:
        disk = await _open(tmp_path / "disk")
        await _store(disk, "a", b"one")
        (tmp_path / "disk").rename(tmp_path / "elsewhere")
        with pytest.raises(FileNotFoundError, match="was deleted, moved or unmounted"):
            await disk.check()
        await disk.close()

    asyncio.run(run())


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_files_are_the_users_own_and_those_of_an_older_version_become_so(tmp_path: Path) -> None:
    folder = tmp_path / "disk"
    folder.mkdir(mode=0o755)
    (folder / "old").write_bytes(b"data")
    (folder / "old").chmod(0o644)

    async def run() -> None:
        disk = await _open(folder)
        await _store(disk, "new", b"data")
        await disk.close()

    asyncio.run(run())
    assert _mode(folder) == 0o700
    assert {_mode(path) for path in folder.iterdir()} == {0o600}
