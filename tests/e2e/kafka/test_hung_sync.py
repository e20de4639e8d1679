"""A disk that hangs in the middle of a sync: the produce waits for it, and all other connections are served meanwhile."""

from __future__ import annotations

import gc
import os
import threading
from pathlib import Path

import pytest

from penstock.blob import local_disk
from penstock.blob.write_pace import SYNC_IN_PLACE_BYTES, WritePace
from penstock.kafka.protocol import errors, keys
from penstock.kafka.protocol.produce import ProduceResponse
from penstock.testing.batches import make_batch
from tests.e2e.kafka.raw_client import RawClient, produce_request
from tests.e2e.kafka.running_gateway import RunningGateway

VERSION = 9


class SlowDisk:
    """Syncs files in the place of SyncThread; while it hangs, no sync returns."""

    hangs = False
    is_hanging = threading.Event()
    released = threading.Event()

    def __init__(self, name: str) -> None:
        self.is_busy = False
        self._fd = -1

    def sync(self, fd: int, wait_s: float) -> bool:
        if self.hangs:
            self.is_busy = True
            self._fd = fd
            self.is_hanging.set()
            return False
        os.fdatasync(fd)
        return True

    def finish(self) -> None:
        assert self.released.wait(30)
        self.is_busy = False
        os.fdatasync(self._fd)

    def stop(self) -> None:
        pass


class AlwaysQuick(WritePace):
    """The pace of a disk that was quick until now."""

    def note(self, began: float, ended: float) -> None:
        pass


def test_other_connections_go_on_while_a_sync_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_disk, "SyncThread", SlowDisk)
    batch = make_batch([bytes(SYNC_IN_PLACE_BYTES)])
    with RunningGateway(tmp_path, durable=True) as gateway:
        gateway.create_topic("t")
        for disk in (found for found in gc.get_objects() if isinstance(found, local_disk.LocalDisk)):
            disk._pace = AlwaysQuick(slow_max=1)
        with RawClient(gateway.port) as writer, RawClient(gateway.port) as other:
            assert writer.produce("t", batch).error_code == errors.NONE
            monkeypatch.setattr(SlowDisk, "hangs", True)
            writer.send(keys.PRODUCE, VERSION, produce_request("t", batch))
            assert SlowDisk.is_hanging.wait(30), "the sync was not done on the loop"
            data = other.fetch("t", 0)
            assert (data.error_code, data.high_watermark) == (errors.NONE, 1), "what is not synced is not shown"
            monkeypatch.setattr(SlowDisk, "hangs", False)
            SlowDisk.released.set()
            _, reply = writer.receive(keys.PRODUCE, VERSION, ProduceResponse)
            assert reply.responses[0].partition_responses[0].error_code == errors.NONE
            assert other.fetch("t", 0).high_watermark == 2
