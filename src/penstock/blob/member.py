"""One open VDisk of a group with its background work: sync, replication and upkeep. Each member runs its own, so that one whose
disk hangs or fails does not delay the others."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import AsyncIterator

from penstock.blob.failure_log import FailureLog
from penstock.blob.group import Group
from penstock.blob.probe import GroupProbe
from penstock.blob.refill_pace import RefillPace
from penstock.blob.replication import Replicator
from penstock.blob.sync import Syncer
from penstock.blob.upkeep import Upkeep
from penstock.blob.vdisk import VDisk
from penstock.core.clock import Clock

log = logging.getLogger(__name__)

# A round makes few calls to its disk, each with a deadline of its own; this one is for what has none.
ROUND_TIMEOUT_S = 300.0
ENDS_INTERVAL_S = 5.0  # each costs a sync


class Member:
    """A VDisk of a group, its sync, replication, upkeep and scrub, and what goes wrong with them."""

    def __init__(self, vdisk: VDisk, group: Group, probe: GroupProbe, clock: Clock, pace: RefillPace) -> None:
        self.vdisk = vdisk
        self.syncer = Syncer(vdisk, group)
        self.upkeep = Upkeep(vdisk)
        self.replicator = Replicator(vdisk, group, pace, self._cover_loss)
        self._group = group
        self._probe = probe
        self._clock = clock
        self._upkeep_trouble = FailureLog(log, f"VDisk {vdisk.id}: upkeep", clock)
        self._scrub_trouble = FailureLog(log, f"VDisk {vdisk.id}: scrub", clock)
        self._write_trouble = FailureLog(log, f"VDisk {vdisk.id}: writing", clock)
        self._failures_told = 0
        self._ends_noted_at = float("-inf")
        self._disorders_seen = (-1, -1)  # of this process, and of those that the disk was told of
        self._replicated_at = float("-inf")
        self.has_compared = False  # its parts with those of the others that answered, since it was opened
        self._healing: asyncio.Task[None] | None = None
        self._scrubbing: asyncio.Task[None] | None = None

    async def watch_space(self) -> None:
        """Check the free space on its disk."""
        try:
            await self.upkeep.watch_space()
        except OSError as error:
            self._upkeep_trouble.failed(error)

    async def accept_losses(self) -> None:
        """Accept that data of the only copy is lost, as the operator has confirmed."""
        try:
            await self.upkeep.accept_losses()
        except OSError as error:
            self._upkeep_trouble.failed(error)

    async def _cover_loss(self) -> bool:
        try:
            return await self.upkeep.cover_loss()
        except OSError as error:
            self._upkeep_trouble.failed(error)
            return False

    async def round(self, replication_interval: float) -> bool:
        """Check the disk, sync with the sisters, start replicating missing parts, and do the upkeep that is due. Returns False if
        the disk's files are gone, so that it must be opened again."""
        try:
            async with asyncio.timeout(ROUND_TIMEOUT_S):
                return await self._round(replication_interval)
        except TimeoutError:
            self._upkeep_trouble.failed(OSError(errno.ETIMEDOUT, f"a round took more than {ROUND_TIMEOUT_S:g} s"))
            return True

    async def _round(self, replication_interval: float) -> bool:
        try:
            await self.vdisk.disk.check()
        except FileNotFoundError as error:
            log.error("VDisk %s is out: %s; bring it back, or put an empty disk in its place", self.vdisk.id, error.strerror)
            return False
        except OSError as error:
            self.vdisk.answers = False
            self._upkeep_trouble.failed(error)
        else:
            self.vdisk.answers = True
        await self.syncer.round()
        is_due = self._clock.monotonic() - self._replicated_at >= replication_interval
        is_disordered = is_due and self._disorders_seen != (self._group.disorders, self.vdisk.disorders)
        if self.vdisk.lacks_parts or not self.has_compared or self.vdisk.repair_wanted.is_set() or is_disordered:
            _ = self.heal()
        await self.tend()
        return True

    def heal(self) -> asyncio.Task[None]:
        """Replicate in the background, unless that is in progress: it may take hours, and everything else goes on meanwhile."""
        if self._healing is None or self._healing.done():
            self._healing = asyncio.create_task(self._heal(), name="penstock-heal")
        return self._healing

    async def replicate(self) -> None:
        """One round of replication."""
        self._disorders_seen = (self._group.disorders, self.vdisk.disorders)
        self._replicated_at = self._clock.monotonic()
        report = await self.replicator.round()
        self.has_compared = self.has_compared or report.is_whole
        if not report.complete:
            self._disorders_seen = (-1, -1)  # it was not compared with all: once more when it is due
        self._probe.note_round(self.vdisk.order, report)
        if report.restored or report.dropped or report.failed:
            log.info("VDisk %s: %s", self.vdisk.id, report)

    async def tend(self) -> None:
        """One step of upkeep: space, checkpoints, reclaiming."""
        try:
            await self.upkeep.step()
            if self._clock.monotonic() - self._ends_noted_at >= ENDS_INTERVAL_S:
                self._ends_noted_at = self._clock.monotonic()
                await self.upkeep.note_ends()
                damaged = await self.upkeep.check_files()
                self._probe.damaged_found += damaged
        except OSError as error:
            self._upkeep_trouble.failed(error)
        else:
            self._upkeep_trouble.succeeded()
        self._report_writes()

    async def scrub(self) -> AsyncIterator[int]:
        """Verify everything that is stored, once; yields the parts found damaged, chunk by chunk."""
        async for damaged in self.upkeep.scrub():
            self._probe.note_scrub(damaged)
            if damaged:
                log.error("VDisk %s: scrub found %d damaged parts", self.vdisk.id, damaged)
            yield damaged
        self._probe.scrub_finished_ms = int(self._clock.wall() * 1000)

    def scrub_slowly(self, interval: float) -> None:
        """Scrub in the background from now on, one chunk at a time."""
        self._scrubbing = asyncio.create_task(self._scrub_slowly(interval), name="penstock-scrub")

    async def stop(self) -> None:
        """Cancel its background work."""
        tasks = [task for task in (self._healing, self._scrubbing) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _report_writes(self) -> None:
        journal = self.vdisk.journal
        if journal.trouble is not None:
            self._write_trouble.failed(journal.trouble)
        else:
            if journal.failures > self._failures_told:
                log.error(
                    "VDisk %s: %d writes failed, and it writes again", self.vdisk.id, journal.failures - self._failures_told
                )
            self._write_trouble.succeeded()
        self._failures_told = journal.failures

    async def _heal(self) -> None:
        try:
            await self.replicate()
        except Exception:
            log.exception("VDisk %s: replication failed, it will be tried again", self.vdisk.id)

    async def _scrub_slowly(self, interval: float) -> None:
        while True:
            await asyncio.sleep(interval)
            try:
                async for _ in self.scrub():
                    self._scrub_trouble.succeeded()
                    await asyncio.sleep(interval)
            except OSError as error:
                self._scrub_trouble.failed(error)
            except Exception:
                log.exception("VDisk %s: scrub failed, it will be tried again", self.vdisk.id)
