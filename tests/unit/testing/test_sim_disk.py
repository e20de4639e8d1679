"""The simulated disk: durability at the completion of a flush, each fault, and what a crash leaves."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import random
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest

from penstock.blob.disk import Disk, DiskSpace
from penstock.testing.sim_disk import SECTOR_SIZE, DiskFaults, Latency, Operation, SimDisk, SimPlatter, Tear
from penstock.testing.sim_loop import ProcessDiedError, SimCrashed, SimProcess, SimulationError, current_loop, run_simulation

_T = TypeVar("_T")
_ONE_SECOND: dict[Operation, Latency] = {
    "files": Latency(1.0),
    "flush": Latency(1.0),
    "read": Latency(1.0),
    "delete": Latency(1.0),
    "space": Latency(1.0),
}


def _disk(platter: SimPlatter | None = None, faults: DiskFaults | None = None, *, seed: int = 0) -> SimDisk:
    return SimDisk(platter if platter is not None else SimPlatter(), random.Random(seed), faults, _ONE_SECOND)


def _on_disk(scenario: Callable[[SimDisk], Coroutine[Any, Any, _T]], disk: SimDisk | None = None) -> _T:
    return run_simulation(scenario(disk if disk is not None else _disk()))


async def _store(disk: Disk, name: str, data: bytes) -> None:
    disk.append(name, [data])
    await disk.flush(name)


def _error_code(error: pytest.ExceptionInfo[OSError]) -> int | None:
    return error.value.errno


# The protocol.


def test_bytes_are_readable_once_their_flush_returned() -> None:
    async def scenario(disk: SimDisk) -> None:
        disk.append("log", [b"one ", bytearray(b"two "), memoryview(b"three")])
        assert await disk.read("log", 0, 100) == b""
        await disk.flush("log")
        assert await disk.read("log", 4, 3) == b"two"
        assert await disk.read("log", 8, 100) == b"three"
        assert await disk.read("log", 99, 1) == b""
        assert await disk.files() == {"log": 13}
        assert disk.piece("log", 0, 1) is None

    _on_disk(scenario)


def test_reading_a_file_that_is_not_there_is_an_error() -> None:
    async def scenario(disk: SimDisk) -> None:
        await disk.read("none", 0, 1)

    with pytest.raises(FileNotFoundError):
        _on_disk(scenario)


def test_a_flush_takes_effect_when_it_completes() -> None:
    async def scenario(disk: SimDisk) -> None:
        disk.append("log", [b"data"])
        async with asyncio.TaskGroup() as group:
            group.create_task(disk.flush("log"))
            await asyncio.sleep(0.99)
            assert disk.platter.snapshot() == {}
        assert disk.platter.snapshot() == {"log": b"data"}

    _on_disk(scenario)


def test_appends_during_a_flush_belong_to_the_next() -> None:
    async def scenario(disk: SimDisk) -> None:
        disk.append("log", [b"first"])
        async with asyncio.TaskGroup() as group:
            group.create_task(disk.flush("log"))
            await asyncio.sleep(0.5)
            disk.append("log", [b"second"])
        assert disk.platter.snapshot() == {"log": b"first"}
        await disk.flush("log")
        assert disk.platter.snapshot() == {"log": b"firstsecond"}

    _on_disk(scenario)


def test_a_cancelled_flush_still_happens() -> None:
    async def scenario(disk: SimDisk) -> None:
        disk.append("log", [b"data"])
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await disk.flush("log")
        await asyncio.sleep(1)
        assert disk.platter.snapshot() == {"log": b"data"}
        await _store(disk, "log", b"!")

    _on_disk(scenario)


def test_two_flushes_of_a_file_at_a_time_are_refused() -> None:
    async def scenario(disk: SimDisk) -> None:
        disk.append("log", [b"data"])
        first = asyncio.create_task(disk.flush("log"))
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="two flushes"):
            await disk.flush("log")
        await first

    _on_disk(scenario)


def test_a_buffer_changed_before_its_flush_is_caught() -> None:
    async def scenario(disk: SimDisk) -> None:
        buffer = bytearray(b"data")
        disk.append("log", [buffer])
        flush = asyncio.create_task(disk.flush("log"))
        await asyncio.sleep(0.5)
        buffer[0] = 0
        await flush

    with pytest.raises(AssertionError, match="changed before its flush"):
        _on_disk(scenario)


def test_a_deleted_file_is_gone_and_may_be_deleted_again() -> None:
    async def scenario(disk: SimDisk) -> None:
        await _store(disk, "log", b"old")
        disk.append("log", [b"unflushed"])
        await disk.delete("log")
        await disk.delete("log")
        assert await disk.files() == {}
        await _store(disk, "log", b"new")
        assert disk.platter.snapshot() == {"log": b"new"}

    _on_disk(scenario)


def test_a_flush_in_progress_does_not_bring_a_deleted_file_back() -> None:
    async def scenario(disk: SimDisk) -> None:
        disk.append("log", [b"data"])
        async with asyncio.TaskGroup() as group:
            group.create_task(disk.delete("log"))
            await asyncio.sleep(0.5)
            group.create_task(disk.flush("log"))
        assert await disk.files() == {}

    _on_disk(scenario)


def test_content_survives_a_close_and_the_lock_is_released() -> None:
    async def scenario(disk: SimDisk) -> None:
        await _store(disk, "log", b"data")
        with pytest.raises(BlockingIOError):
            _disk(disk.platter)
        await disk.close()
        with pytest.raises(OSError, match="closed") as caught:
            await disk.files()
        assert _error_code(caught) == errno.EBADF
        again = _disk(disk.platter)
        await _store(again, "log", b" more")
        assert await again.read("log", 0, 100) == b"data more"

    _on_disk(scenario)


def test_a_zero_tail_is_listed_read_and_appended_after_by_the_next_incarnation() -> None:
    async def scenario(disk: SimDisk) -> None:
        await _store(disk, "log", b"abc")
        await _store(disk, "log", b"def")
        assert await disk.files() == {"log": 16}
        assert await disk.read("log", 4, 100) == b"ef" + bytes(10)
        disk.crash()
        again = _disk(disk.platter)
        await _store(again, "log", b"next")
        assert await again.files() == {"log": 32}
        assert await again.read("log", 0, 20) == b"abcdef" + bytes(10) + b"next"

    _on_disk(scenario, _disk(SimPlatter(zero_tail=16)))


def test_a_reservation_shows_as_zeros_from_the_next_flush_and_is_given_back_by_one_of_none() -> None:
    async def scenario(disk: SimDisk) -> None:
        disk.reserve("log", 100)
        assert await disk.files() == {}
        await _store(disk, "log", b"abc")
        assert await disk.files() == {"log": 100}
        assert await disk.read("log", 2, 1000) == b"c" + bytes(97)
        assert await disk.space() == DiskSpace(256, 156)
        await _store(disk, "log", b"def")
        disk.reserve("log", 0)
        assert await disk.files() == {"log": 100}
        await disk.flush("log")
        assert await disk.files() == {"log": 6}
        disk.reserve("other", 1000)
        await _store(disk, "other", b"more than fits is not set aside")
        assert await disk.files() == {"log": 6, "other": 31}

    _on_disk(scenario, _disk(faults=DiskFaults(capacity=256)))


# Faults.


def test_every_operation_of_a_broken_disk_fails_until_it_is_mended() -> None:
    async def scenario(disk: SimDisk) -> None:
        await _store(disk, "log", b"data")
        disk.faults.broken = True
        disk.append("other", [b"x"])
        attempts = [disk.files(), disk.flush("other"), disk.read("log", 0, 1), disk.delete("log"), disk.space()]
        for attempt in attempts:
            with pytest.raises(OSError, match="injected") as caught:
                await attempt
            assert _error_code(caught) == errno.EIO
        disk.faults.broken = False
        assert await disk.read("log", 0, 4) == b"data"

    _on_disk(scenario)


def test_an_error_rate_strikes_its_kind_of_operation_only() -> None:
    async def scenario(disk: SimDisk) -> None:
        await _store(disk, "log", b"data")
        disk.faults.error_rate["read"] = 0.3
        failures = 0
        for _ in range(200):
            try:
                await disk.read("log", 0, 1)
            except OSError:
                failures += 1
            await disk.files()
        assert 30 < failures < 90

    _on_disk(scenario)


def test_latency_is_base_and_jitter_times_the_slow_factor() -> None:
    async def scenario(disk: SimDisk) -> None:
        loop = current_loop()
        taken_s: list[float] = []
        for factor in (1.0, 10.0):
            disk.faults.slow_factor = factor
            for _ in range(50):
                start_s = loop.time()
                await disk.space()
                taken_s.append((loop.time() - start_s) / factor)
        assert min(taken_s) >= 1.99
        assert max(taken_s) <= 3.01
        assert max(taken_s) - min(taken_s) > 0.5

    _on_disk(scenario, SimDisk(SimPlatter(), random.Random(1), latency={"space": Latency(2.0, 1.0)}))


@pytest.mark.parametrize("zero_tail", [0, 64])
def test_a_full_disk_refuses_flushes_and_still_reads_and_deletes(zero_tail: int) -> None:
    async def scenario(disk: SimDisk) -> None:
        await _store(disk, "a", b"a" * 192)
        disk.append("b", [b"b" * 65])
        with pytest.raises(OSError, match="full") as caught:
            await disk.flush("b")
        assert _error_code(caught) == errno.ENOSPC
        assert await disk.read("a", 0, 192) == b"a" * 192
        assert disk.platter.used <= 256
        await disk.delete("b")
        assert await disk.space() == DiskSpace(256, 64)
        await _store(disk, "c", b"c" * 64)
        await disk.delete("a")
        await _store(disk, "d", b"d" * 192)

    _on_disk(scenario, _disk(SimPlatter(zero_tail=zero_tail), DiskFaults(capacity=256)))


def test_a_failed_flush_leaves_a_prefix_and_ends_the_file() -> None:
    async def scenario(disk: SimDisk) -> bytes:
        await _store(disk, "log", b"good ")
        disk.append("log", [b"0123456789"])
        disk.faults.error_rate["flush"] = 1.0
        with pytest.raises(OSError, match="injected"):
            await disk.flush("log")
        disk.faults.error_rate.clear()
        disk.append("log", [b"more"])
        with pytest.raises(OSError, match="tail is unknown"):
            await disk.flush("log")
        await _store(disk, "other", b"fine")
        return disk.platter.snapshot()["log"]

    left = {_on_disk(scenario, _disk(seed=seed)) for seed in range(60)}
    assert left == {b"good " + b"0123456789"[:kept] for kept in range(11)}


def test_a_wiped_platter_is_empty_and_cannot_be_wiped_in_use() -> None:
    async def scenario(disk: SimDisk) -> None:
        await _store(disk, "log", b"data")
        with pytest.raises(SimulationError, match="crash or close"):
            disk.platter.wipe()
        disk.crash()
        disk.platter.wipe()
        assert await _disk(disk.platter).files() == {}

    _on_disk(scenario)


def test_rot_flips_one_bit_at_the_chosen_place() -> None:
    async def scenario(disk: SimDisk) -> None:
        await _store(disk, "log", bytes(100))
        assert disk.platter.rot(random.Random(1), "log", 42) == ("log", 42)
        rotten = await disk.read("log", 0, 100)
        assert rotten[42].bit_count() == 1
        assert rotten.count(0) == 99

    _on_disk(scenario)


def test_rot_draws_a_place_and_garbles_every_byte_of_it() -> None:
    async def scenario(disk: SimDisk) -> None:
        await _store(disk, "a", bytes(100))
        await _store(disk, "b", bytes(300))
        name, offset = disk.platter.rot(random.Random(4), length=8)
        rotten = disk.platter.snapshot()
        assert all(rotten[name][offset : offset + 8])
        assert sum(each.count(0) for each in rotten.values()) == 392

    _on_disk(scenario)


# Crashes.


async def _crashed(seed: int, tears: tuple[Tear, ...]) -> bytes | None:
    """What a crash in the middle of a flush leaves after durable bytes that end inside a sector."""
    disk = _disk(faults=DiskFaults(tears=tears), seed=seed)
    await _store(disk, "log", b"d" * 700)
    disk.append("log", [b"f" * 2000])
    flush = asyncio.create_task(disk.flush("log"))
    await asyncio.sleep(0.5)
    disk.append("log", [b"q" * 1000])
    disk.crash()
    with pytest.raises(SimCrashed):
        await flush
    content = disk.platter.snapshot()["log"]
    assert content[:700] == b"d" * 700
    return content[700:]


_WRITTEN = b"f" * 2000 + b"q" * 1000


def _leftovers(*tears: Tear) -> list[bytes]:
    left = [run_simulation(_crashed(seed, tears)) for seed in range(40)]
    return [each for each in left if each is not None]


def test_a_crash_may_leave_nothing_or_all() -> None:
    assert set(_leftovers(Tear.NOTHING)) == {b""}
    assert set(_leftovers(Tear.ALL)) == {_WRITTEN}


def test_a_crash_may_leave_any_prefix() -> None:
    left = _leftovers(Tear.PREFIX)
    assert all(_WRITTEN.startswith(each) for each in left)
    assert len(set(left)) > 20


def test_a_crash_may_leave_any_sectors() -> None:
    fates: set[str] = set()
    for left in _leftovers(Tear.SECTORS):
        start = 0
        while start < len(left):
            end = min(len(left), start + SECTOR_SIZE - (700 + start) % SECTOR_SIZE)
            sector, meant = left[start:end], _WRITTEN[start:end]
            fates.add("kept" if sector == meant else "zero" if sector == bytes(len(sector)) else "garbage")
            start = end
    assert fates == {"kept", "zero", "garbage"}


def test_a_crash_draws_among_all_tears_by_default() -> None:
    left = _leftovers(*Tear)
    assert b"" in left
    assert _WRITTEN in left
    assert any(0 < len(each) < len(_WRITTEN) and _WRITTEN.startswith(each) for each in left)
    assert any(not _WRITTEN.startswith(each) for each in left)


def test_a_new_file_never_flushed_may_be_absent_or_empty_after_a_crash() -> None:
    async def scenario(disk: SimDisk) -> tuple[str, ...]:
        disk.append("new", [b"data"])
        disk.crash()
        return tuple(await _disk(disk.platter).files())

    faults = DiskFaults(tears=(Tear.NOTHING,))
    assert {_on_disk(scenario, _disk(faults=faults, seed=seed)) for seed in range(20)} == {(), ("new",)}


def test_a_deletion_in_flight_at_a_crash_is_done_or_undone() -> None:
    async def scenario(disk: SimDisk) -> dict[str, bytes]:
        await _store(disk, "log", b"data")
        delete = asyncio.create_task(disk.delete("log"))
        await asyncio.sleep(0.5)
        disk.crash()
        with pytest.raises(SimCrashed):
            await delete
        return disk.platter.snapshot()

    left = [_on_disk(scenario, _disk(seed=seed)) for seed in range(20)]
    assert {} in left
    assert {"log": b"data"} in left


def test_no_operation_succeeds_after_a_crash() -> None:
    async def scenario(disk: SimDisk) -> None:
        await _store(disk, "log", b"data")
        disk.crash()
        disk.crash()
        with pytest.raises(SimCrashed):
            disk.append("log", [b"late"])
        attempts = [disk.files(), disk.flush("log"), disk.read("log", 0, 1), disk.delete("log"), disk.space(), disk.close()]
        for attempt in attempts:
            with pytest.raises(SimCrashed):
                await attempt
        assert disk.platter.snapshot() == {"log": b"data"}

    _on_disk(scenario)


def test_a_flush_that_completed_but_was_not_yet_told_does_not_report_success() -> None:
    async def scenario(disk: SimDisk) -> None:
        disk.append("log", [b"data"])
        current_loop().call_later(1, disk.crash)
        flush = asyncio.create_task(disk.flush("log"))
        with pytest.raises(SimCrashed):
            await flush

    _on_disk(scenario)


async def _writer(platter: SimPlatter, acknowledged: list[int]) -> None:
    disk = SimDisk(platter, current_loop().fork_random("disk"))
    for number in range(6):
        disk.append("log", [number.to_bytes(4, "big") * 200])
        await disk.flush("log")
        acknowledged.append(number)


async def _killed_writer(step: int) -> tuple[list[int], dict[str, bytes], bool]:
    platter = SimPlatter()
    acknowledged: list[int] = []
    process = SimProcess(current_loop(), "node")
    process.crash_at_step(step)
    with contextlib.suppress(ProcessDiedError):
        await process.call(_writer(platter, acknowledged))
    if process.crashed:
        _disk(platter).crash()
    return acknowledged, platter.snapshot(), process.crashed


def test_whatever_was_acknowledged_survives_a_crash_at_any_step() -> None:
    crashes = 0
    for step in range(30):
        acknowledged, content, crashed = run_simulation(_killed_writer(step), seed=step)
        promised = b"".join(number.to_bytes(4, "big") * 200 for number in acknowledged)
        assert content.get("log", b"").startswith(promised)
        crashes += crashed
    assert crashes > 10


def test_one_seed_leaves_one_platter() -> None:
    def run() -> list[tuple[list[int], dict[str, bytes], bool]]:
        return [run_simulation(_killed_writer(step), seed=step) for step in range(20)]

    assert run() == run()
