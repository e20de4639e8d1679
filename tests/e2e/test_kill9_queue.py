"""kill -9 of a process under load: every acknowledged offset reads back byte for byte, without duplicates and without gaps."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest

from penstock.blob import FilePiece
from penstock.queue import Partition
from penstock.testing.batches import values_of
from tests.e2e.queue_writer import PARTITIONS, SOURCES, queue_tablet, values_in

ROOT = Path(__file__).resolve().parents[2]
LANES = 2  # tablets of their own, side by side
KILLS = 26  # of each
LIFE_S_MAX = 0.35
OPENING_S_MAX = 0.6
OPENING_RATE = 0.2  # of lives that are to end before the tablet serves

Batch = tuple[int, int, int]  # partition, source, number


@dataclass
class Ledger:
    """What the writers of one tablet were promised over all their lives."""

    acked: dict[Batch, int] = field(default_factory=dict)
    opened: int = 0
    duplicates: int = 0

    def note(self, line: str) -> None:
        """Take in what a writer said."""
        match line.split():
            case ["open"]:
                self.opened += 1
            case ["ack" | "dup" as how, *numbers]:
                partition, source, number, offset = map(int, numbers)
                self.duplicates += how == "dup"
                assert self.acked.setdefault((partition, source, number), offset) == offset
            case other:
                pytest.fail(f"the writer said {other}")

    def next_numbers(self) -> list[Batch]:
        """The first batch of each source that was not acknowledged; some after it may have been."""
        found: list[Batch] = []
        for partition in range(PARTITIONS):
            for source in range(SOURCES):
                number = 0
                while (partition, source, number) in self.acked:
                    number += 1
                found.append((partition, source, number))
        return found


@pytest.mark.slow
def test_acknowledged_offsets_outlive_kill_9(tmp_path: Path) -> None:
    with ThreadPoolExecutor(LANES) as lanes:
        ledgers = list(lanes.map(lambda lane: _live_and_die(tmp_path / str(lane), Random(f"lane {lane}")), range(LANES)))
    assert LANES * KILLS >= 50
    for lane, ledger in enumerate(ledgers):
        assert ledger.opened >= KILLS / 2
        assert len(ledger.acked) > 5 * KILLS
        asyncio.run(_check(tmp_path / str(lane), ledger))
    assert any(ledger.duplicates for ledger in ledgers), "no kill came between a write and its acknowledgement"


def _live_and_die(directory: Path, random: Random) -> Ledger:
    ledger = Ledger()
    for generation in range(1, KILLS + 1):
        _write_until_killed(directory, generation, random, ledger)
    return ledger


def _write_until_killed(directory: Path, generation: int, random: Random, ledger: Ledger) -> None:
    """One life of the process: killed a while after the tablet has booted, or on the way there."""
    while_opening = random.random() < OPENING_RATE
    delay_s = random.random() * (OPENING_S_MAX if while_opening else LIFE_S_MAX)
    arguments = [str(directory), str(generation), json.dumps(ledger.next_numbers())]
    command = [sys.executable, "-m", "tests.e2e.queue_writer", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT, text=True) as writer:
        assert writer.stdout is not None
        killer = threading.Timer(delay_s, writer.kill)
        if while_opening:
            killer.start()
        for line in writer.stdout:
            if line.endswith("\n"):  # a line cut short was not said
                ledger.note(line)
            if line == "open\n" and not while_opening:
                killer.start()
        killer.cancel()
    assert writer.returncode == -9, "the writer ended by itself; its error is above"


async def _check(directory: Path, ledger: Ledger) -> None:
    """Boot the tablet once more, read everything, and hold it to every promise."""
    async with queue_tablet(directory, KILLS + 1) as tablet:
        found: dict[Batch, int] = {}
        for number in range(PARTITIONS):
            found |= await _read_whole(tablet.partition(number))
    assert {batch: found.get(batch) for batch in ledger.acked} == ledger.acked


async def _read_whole(partition: Partition) -> dict[Batch, int]:
    """Every batch of a partition by its first offset, after checking that nothing is missing, twice or damaged."""
    found: dict[Batch, int] = {}
    latest: dict[int, int] = {}
    messages: list[tuple[int, bytes]] = []
    while (offset := messages[-1][0] + 1 if messages else 0) < partition.end_offset:
        result = await partition.read(offset, 8 << 20)
        messages += values_of(b"".join(part for part in result.batches if not isinstance(part, FilePiece)))
    assert [offset for offset, _ in messages] == list(range(partition.end_offset))
    at = 0
    while at < len(messages):
        number, source, batch = map(int, messages[at][1].rsplit(b" ", 3)[1:])
        expected = values_in(number, source, batch)
        assert number == partition.number
        assert [value for _, value in messages[at : at + len(expected)]] == expected
        assert batch == latest.get(source, -1) + 1, f"source {source}: batch {batch} after {latest.get(source)}"
        latest[source] = batch
        found[number, source, batch] = at
        at += len(expected)
    return found
