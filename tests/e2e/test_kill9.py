"""kill -9 at any moment: whatever the process had acknowledged is there when the group is opened again."""

from __future__ import annotations

import asyncio
import logging
import shutil
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from penstock.blob import BlobId, Erasure, LocalGroup, Status
from tests.e2e.blob_writer import CHANNEL, TABLET, data_of, group_life

ROOT = Path(__file__).resolve().parents[2]
KILLS = 5
PROMISES_MAX = 300  # lines said in one life: counted, not timed, so that a slow machine tests as much
JITTER_S = 0.02
WIPED = frozenset((2, 5))
ABSENT_SAMPLE = 50


class Collect(NamedTuple):
    """One command to collect garbage, as it was sent."""

    barrier: tuple[int, int]
    keep: frozenset[BlobId]
    drop: frozenset[BlobId]


@dataclass
class Ledger:
    """What the writers were promised, over all their lives; and of what they asked without an answer, that either may be."""

    put: set[BlobId] = field(default_factory=set)
    done: list[Collect] = field(default_factory=list)
    open: dict[tuple[int, int], Collect] = field(default_factory=dict)
    opened: int = 0

    def note(self, generation: int, line: str) -> None:
        """Take in what a writer of this generation said."""
        match line.split():
            case ["open"]:
                self.opened += 1
            case ["put", text]:
                self.put.add(BlobId.parse(text))
            case ["collect", counter, barrier, keep, drop]:
                collect_generation, step = map(int, barrier.split(":"))
                self.open[generation, int(counter)] = Collect((collect_generation, step), _ids(keep), _ids(drop))
            case ["collected", counter]:
                self.done.append(self.open.pop((generation, int(counter))))
            case other:
                pytest.fail(f"the writer said {other}")

    def promised(self) -> set[BlobId]:
        """Blobs that must be there."""
        return {blob_id for blob_id in self.put if self._fate(blob_id) is True}

    def ended(self) -> set[BlobId]:
        """Blobs that must not be there any more."""
        return {blob_id for blob_id in self.put if self._fate(blob_id) is False}

    def _fate(self, blob_id: BlobId) -> bool | None:
        moment = (blob_id.generation, blob_id.step)
        kept = any(blob_id in collect.keep for collect in self.done)
        if any(blob_id in collect.drop for collect in self.open.values()):
            return None
        if any(blob_id in collect.drop for collect in self.done):
            return False
        if kept:
            return True
        if any(moment <= collect.barrier for collect in self.done):
            return None if any(blob_id in collect.keep for collect in self.open.values()) else False
        # A barrier that was not acknowledged may stand or not; the Keep sent with it stands wherever it does.
        over = [collect for collect in self.open.values() if moment <= collect.barrier]
        return True if all(blob_id in collect.keep for collect in over) else None


@pytest.mark.slow
@pytest.mark.parametrize("kind", list(Erasure), ids=lambda kind: kind.value)
def test_what_was_acknowledged_outlives_kill_9(kind: Erasure, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    ledger = Ledger()
    random = Random(f"kill {kind.value}")
    with caplog.at_level(logging.ERROR):
        for generation in range(1, KILLS + 1):
            write_until_killed(kind, tmp_path, generation, random, ledger)
            asyncio.run(check_reopened(kind, tmp_path, ledger))
    assert ledger.opened == KILLS
    assert ledger.promised()
    assert ledger.ended()
    assert not caplog.messages
    _assert_log_was_reclaimed(tmp_path / "0")


@pytest.mark.slow
def test_a_kill_in_the_middle_of_opening_loses_nothing(tmp_path: Path) -> None:
    kind = Erasure.BLOCK_4_2
    ledger = Ledger()
    random = Random("opening")
    write_until_killed(kind, tmp_path, 1, random, ledger)
    for generation in range(2, 8):
        write_until_killed(kind, tmp_path, generation, random, ledger, opening_s=0.15 + 0.2 * random.random())
    asyncio.run(check_reopened(kind, tmp_path, ledger))
    assert ledger.promised()


@pytest.mark.slow
def test_block_4_2_outlives_kill_9_with_two_disks_wiped(tmp_path: Path) -> None:
    kind = Erasure.BLOCK_4_2
    ledger = Ledger()
    random = Random("wiped")
    for generation in range(1, 4):
        write_until_killed(kind, tmp_path, generation, random, ledger)
        for order in WIPED:
            shutil.rmtree(tmp_path / str(order))
        asyncio.run(check_refilled(kind, tmp_path, ledger))


def write_until_killed(
    kind: Erasure, directory: Path, generation: int, random: Random, ledger: Ledger, *, opening_s: float | None = None
) -> None:
    """One life of a writer: killed a moment after so many promises, or `opening_s` after it was started."""
    arguments = [kind.value, str(directory), str(generation), str(random.randrange(1 << 32))]
    lines_left = random.randrange(1, PROMISES_MAX)
    delay = JITTER_S * random.random() if opening_s is None else opening_s
    with subprocess.Popen(
        [sys.executable, "-m", "tests.e2e.blob_writer", *arguments], stdout=subprocess.PIPE, cwd=ROOT, text=True
    ) as writer:
        assert writer.stdout is not None
        killer = threading.Timer(delay, writer.kill)
        if opening_s is not None:
            killer.start()
        for line in writer.stdout:
            if line.endswith("\n"):  # a line cut short was not said
                ledger.note(generation, line)
            lines_left -= 1
            if lines_left == 0 and opening_s is None:
                killer.start()
        killer.cancel()
    assert writer.returncode == -9, "the writer ended by itself; its error is above"


async def check_reopened(kind: Erasure, directory: Path, ledger: Ledger) -> None:
    """Open the group and hold it to every promise."""
    life = group_life(kind, directory, interval=None)
    await life.start()
    try:
        await _sync_fully(life)
        await _check_promises(life, ledger)
        assert await life.scrub() == 0
        assert [vdisk.recovered.losses for vdisk in life.vdisks.values()] == [[]] * kind.shape.disks
    finally:
        await life.stop()


async def check_refilled(kind: Erasure, directory: Path, ledger: Ledger) -> None:
    """Everything is there without the wiped disks; and once they are refilled, without any two others."""
    life = group_life(kind, directory, missing=WIPED, interval=None)
    await life.start()
    try:
        assert life.vdisks.keys().isdisjoint(WIPED)
        await _sync_fully(life)
        await _check_promises(life, ledger)
    finally:
        await life.stop()
    life = group_life(kind, directory, interval=None)
    await life.start()
    try:
        await _sync_fully(life)
        await life.replicate()
        assert all(vdisk.proves_absence for vdisk in life.vdisks.values())
        for order in (0, 1):
            await life.take_out(order)
        await _check_promises(life, ledger)
    finally:
        await life.stop()


async def _sync_fully(life: LocalGroup) -> None:
    # First every disk hears of all barriers, then that all have heard.
    await life.sync()
    await life.sync()


async def _check_promises(life: LocalGroup, ledger: Ledger) -> None:
    promised, ended = ledger.promised(), ledger.ended()
    first = BlobId(TABLET, CHANNEL, 0, 0, 0, 0)
    listing = await life.proxy.range(first, first._replace(generation=(1 << 32) - 1))
    assert listing.status is Status.OK, listing.reason
    listed = {blob_id for blob_id, _ in listing.blobs}
    assert promised <= listed
    assert not ended & listed
    for blob_id in listed:
        found = await life.proxy.get(blob_id)
        assert found.status is Status.OK, f"{blob_id}: {found.status} {found.reason}"
        assert found.data == data_of(blob_id), f"{blob_id} has other bytes"
    for blob_id in sorted(ended)[-ABSENT_SAMPLE:]:
        assert (await life.proxy.get(blob_id)).status is Status.NODATA


def _assert_log_was_reclaimed(disk: Path) -> None:
    """The test means little unless chunks were rolled, checkpointed and given back; how often depends on the machine."""
    chunks = [int(path.stem) for path in disk.glob("*.chunk")]
    checkpoints = [int(path.stem) for path in disk.glob("*.checkpoint")]
    assert max(checkpoints) > len(checkpoints)
    assert max(chunks) > len(chunks)


def _ids(text: str) -> frozenset[BlobId]:
    return frozenset() if text == "-" else frozenset(map(BlobId.parse, text.split(",")))
