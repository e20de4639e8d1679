"""The history over a restart: it goes on, with a gap, and a file that is not as it should be costs no more than the history."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.server.metrics.history import History, Key, SeriesQuery
from penstock.server.metrics.history_file import FILE_NAME, pack_history, read_history, write_history

START_MS = 1_700_000_040_000
KEYS = (Key("produce_bytes"), Key("produce_bytes", "orders"), Key("lag_messages", "orders", "billing"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with two minutes of three series."""
    history = History()
    history.keep(KEYS)
    for second in range(120):
        history.tick(START_MS + second * 1000, dict.fromkeys(KEYS, float(second)))
    write_history(tmp_path / FILE_NAME, pack_history(history))
    return tmp_path / FILE_NAME


def test_it_goes_on_after_a_gap(path: Path) -> None:
    now_ms = START_MS + 180_000
    history = read_history(path, now_ms)
    assert history is not None
    assert set(history.keys) == set(KEYS)
    history.tick(now_ms, {KEYS[0]: 7.0})
    found: Any = history.query(SeriesQuery("produce_bytes", from_ms=START_MS + 118_000), now_ms)
    assert found["times"] == [START_MS + 118_000, START_MS + 119_000, START_MS + 149_000, now_ms]
    assert found["series"]["produce_bytes"] == [118.0, 119.0, None, 7.0]
    found = history.query(SeriesQuery("lag_messages", consumer="billing", from_ms=START_MS + 119_000), now_ms)
    assert found["series"] == {"orders": [119.0, None, None]}


def test_times_of_the_future_are_not_taken_over(path: Path) -> None:
    assert read_history(path, START_MS) is None


@pytest.mark.parametrize("damage", [b"", b"PSHI", b"PSHI\x02" + bytes(20), b"no history at all"])
def test_what_cannot_be_read_is_left_out(path: Path, damage: bytes) -> None:
    path.write_bytes(damage)
    assert read_history(path, START_MS + 180_000) is None


def test_a_changed_byte_is_noticed_and_no_file_is_no_history(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[-5] ^= 1
    path.write_bytes(raw)
    assert read_history(path, START_MS + 180_000) is None
    path.unlink()
    assert read_history(path, START_MS + 180_000) is None
