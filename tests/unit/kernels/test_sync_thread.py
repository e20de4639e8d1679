"""The thread that syncs files: compiled, and as plain Python without a thread."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.kernels import sync_thread
from tests.kernel_forms import uncompiled

FORMS = {"as installed": sync_thread, "uncompiled": uncompiled("sync_thread")}
PATIENT_S = 60.0


@pytest.fixture(params=FORMS.values(), ids=list(FORMS))
def thread(request: pytest.FixtureRequest) -> Iterator[Any]:
    """One of either form."""
    made = request.param.SyncThread("sync-of-test")
    yield made
    made.stop()


@pytest.fixture
def fd(tmp_path: Path) -> Iterator[int]:
    """An open file with something in it."""
    opened = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    os.write(opened, bytes(100_000))
    yield opened
    os.close(opened)


def test_a_sync_that_is_done_in_time(thread: Any, fd: int) -> None:
    for _ in range(3):
        assert thread.sync(fd, PATIENT_S)
        assert not thread.is_busy


def test_a_sync_that_takes_longer_is_finished_by_another_thread(thread: Any, fd: int) -> None:
    for _ in range(20):
        os.write(fd, bytes(100_000))
        if not thread.sync(fd, 0.0):
            assert thread.is_busy
            waiter = threading.Thread(target=thread.finish)
            waiter.start()
            waiter.join(PATIENT_S)
        assert not thread.is_busy
    assert thread.sync(fd, PATIENT_S)


def test_a_sync_that_fails_is_an_error_and_the_next_one_is_not(thread: Any, fd: int) -> None:
    reading, writing = os.pipe()
    with pytest.raises(OSError, match="Invalid argument") as caught:
        thread.sync(writing, PATIENT_S)
    assert caught.value.errno == errno.EINVAL
    assert not thread.is_busy
    assert thread.sync(fd, PATIENT_S)
    os.close(reading)
    os.close(writing)


def test_a_thread_that_is_stopped_ends() -> None:
    made = sync_thread.SyncThread("sync-to-be-stopped")
    running = [thread for thread in threading.enumerate() if thread.name == "sync-to-be-stopped"]
    assert len(running) == sync_thread.COMPILED
    made.stop()
    for thread in running:
        thread.join(PATIENT_S)
        assert not thread.is_alive()
