"""The fault simulation of tablets and partitions: `python -m penstock.testing.simulate --world partition`.

A run is one group, one tablet with a few partitions on it, writers, readers and a janitor that use them, hosts that reboot the
tablet and let its generations fight, and the nemesis of the group. Every answer is judged; when all has healed, everything that
was acknowledged is read back, the generations left behind have stopped, and nothing is stored that no key refers to.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from dataclasses import replace
from random import Random
from typing import Any

from penstock.blob import BlobId, Erasure, RangeResult, Status
from penstock.blob.blob_id import COOKIE_MAX, GENERATION_MAX, STEP_MAX
from penstock.blob.journal import RETRY_MAX_S
from penstock.queue import PartitionConfig, SourceWrite, head
from penstock.tablet import KvOptions
from penstock.tablet.boot import DATA, LOG, PAGES
from penstock.testing.fault_checks import settle
from penstock.testing.fault_ledger import InvariantError, require
from penstock.testing.queue_clients import AnonymousWriter, Janitor, Reader, Writer, compact_whole, read_whole
from penstock.testing.queue_hosts import NEVER, Hosts, Instance, TabletSettings
from penstock.testing.queue_ledger import Message, PartitionLedger, SizeProfile
from penstock.testing.queue_world import INFO, TABLET, QueueNemesis, QueueWorld, Wire, drawn_sizes
from penstock.testing.seed_runs import Run, simulate
from penstock.testing.sim_loop import SimClock, current_loop
from penstock.testing.suspended_tasks import waiting_at

TIME_S_MAX = 7200.0
EPOCH_S_MAX = 600.0
TORMENT_S_MAX = 3.0
GARBAGE_ROUNDS_MAX = 40
LOG_ENTRIES_MAX = 2  # that of the snapshot itself, and one with what was collected after it

Work = Coroutine[Any, Any, None]

KINDS = (
    Erasure.NONE,
    Erasure.BLOCK_4_2,
    Erasure.NONE,
    Erasure.MIRROR_3_DC,
    Erasure.NONE,
    Erasure.MIRROR_3,
    Erasure.NONE,
    Erasure.NONE,
)


def erasure_of(seed: int) -> Erasure:
    """The kind of group that a seed chooses. Most have one disk: a tablet sees little of the others, and they take longer."""
    return KINDS[seed % len(KINDS)]


def run_seed(seed: int, erasure: Erasure | None = None) -> Run:
    """Run one simulation; SeedFailedError if anything is not as promised."""
    run = Run(seed, erasure or erasure_of(seed))
    with drawn_sizes(Random(f"{seed}/sizes")):
        return simulate(run, _main(run), world="partition", time_s_max=TIME_S_MAX)


async def _main(run: Run) -> None:
    loop = current_loop()
    rng = loop.fork_random(f"partition/{run.erasure.value}")
    world = QueueWorld(loop, run.erasure, rng)
    run.faults = world.log
    # Apart from the rest: without keys, a seed is what it was before there was compaction.
    key_rng = loop.fork_random("keys")
    key_count = key_rng.choice([0, 0, 1, 5, 40])
    sizes = SizeProfile(rng.choice([10, 100, 1000]), rng.choice([1000, 10_000]), rng.choice([5, 50]), key_count)
    firsts = [rng.choice([0, 0, 1000, 1 << 40]) for _ in range(rng.randint(1, 3))]
    ledgers = {number: PartitionLedger(number, first, sizes, trim_tried=first) for number, first in enumerate(firsts)}
    settings = _draw_settings(rng)
    if key_count:
        config = replace(settings.config, is_compacted=True, min_dirty_ratio=key_rng.choice([0.0, 0.5]))
        settings = replace(settings, config=config)
    hosts = Hosts(world, settings, ledgers, loop.fork_random("hosts"))
    run.counts = hosts.counts
    nemesis = QueueNemesis(world, loop.fork_random("nemesis"))
    await world.start()
    for epoch in range(rng.randint(1, 2)):
        await _epoch(world, nemesis, hosts, rng, epoch)
        run.crashes = world.crashes
        await _judge(world, hosts, epoch)
    await hosts.stop()
    await world.stop()


def _draw_settings(rng: Random) -> TabletSettings:
    config = PartitionConfig(
        low_watermark=int(head.BODY_SIZE * rng.choice([0.2, 0.5, 0.75])),
        retention_bytes=rng.choice([None, 3000, 50_000]),
        retention_ms=None,
        important_consumers=rng.choice([frozenset(), frozenset({"reader-0"})]),
        waiting_bytes_max=rng.choice([1500, 20_000, 64 << 20]),
    )
    options = KvOptions(
        snapshot_entries=rng.choice([3, 10, 50]),
        snapshot_bytes=rng.choice([500, 5000, 1 << 20]),
        garbage_bytes=rng.choice([1, 1000, 100_000]),
        garbage_blobs=rng.choice([1, 5, 50]),
        idle_garbage_s=rng.choice([0.01, 0.1, 1.0]),
    )
    wire = Wire(
        delay_s=rng.choice([0.0, 0.001, 0.01]),
        stray_rate=rng.choice([0.0, 0.01, 0.05]),
        stray_s=rng.choice([0.1, 1.0, 10.0]),
        timeout_s=rng.choice([0.1, 1.0, 5.0]),
    )
    return TabletSettings(config, options, wire, rng.choice([0.0, 0.5, 1.0]), rng.choice([0, 3000, 1 << 20]))


async def _epoch(world: QueueWorld, nemesis: QueueNemesis, hosts: Hosts, rng: Random, epoch: int) -> None:
    """Clients, reboots and faults together, until the faults have ended and the writers are done."""
    loop = world.loop
    writers, others = _clients(hosts, rng, epoch)
    restarting = loop.create_task(nemesis.restart_after_crashes(), name="restarter")
    ending = asyncio.Event()
    supervising = loop.create_task(hosts.supervise(ending), name="supervisor")
    helpers = [loop.create_task(work, name="client") for work in others] + [restarting]
    work = [loop.create_task(writer, name="writer") for writer in writers]
    hosts.settings.wire.is_quiet = False
    torment = loop.create_task(_torment(world, nemesis, hosts, rng.uniform(0.1, TORMENT_S_MAX)), name="torment")
    try:
        async with asyncio.timeout(EPOCH_S_MAX):
            await _until_done([*work, torment], [*helpers, supervising], nemesis)
            ending.set()
            await _until_done([supervising], helpers, nemesis)
    except TimeoutError:
        waiting = [f"{task.get_name()} in {waiting_at(task)}" for task in [*work, torment, supervising] if not task.done()]
        raise InvariantError(
            f"not done after {EPOCH_S_MAX} s: {', '.join(waiting + nemesis.waiting())}; {hosts.counts}"
        ) from None
    for task in helpers:
        task.cancel()
    await asyncio.gather(*helpers, return_exceptions=True)


async def _torment(world: QueueWorld, nemesis: QueueNemesis, hosts: Hosts, for_s: float) -> None:
    """Faults for a while, then healing: from then on writers must get on."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(for_s):
            await nemesis.torment()
    world.note("calm")
    hosts.calm_down()
    world.process.crash_at_step(NEVER)
    await nemesis.heal()
    # The process may have been restarted meanwhile, with another crash scheduled.
    await world.up.wait()
    world.process.crash_at_step(NEVER)
    world.note("healed")


def _clients(hosts: Hosts, rng: Random, epoch: int) -> tuple[list[Work], list[Work]]:
    """Writers, which come to an end, and those who only look on or clear away."""
    batches = rng.randint(3, 25)
    writers: list[Work] = []
    others: list[Work] = []
    for number, ledger in hosts.ledgers.items():
        for name in (f"{epoch}-{number}-{at}" for at in range(rng.randint(1, 4))):
            own = Random(rng.getrandbits(64))
            writers.append(Writer(hosts, ledger, name, own, window_max=rng.randint(1, 4)).run(batches))
        if rng.random() < 0.5:
            writers.append(AnonymousWriter(hosts, ledger, f"{epoch}-{number}-x", Random(rng.getrandbits(64))).run(batches))
        others += (Reader(hosts, ledger, f"reader-{at}", Random(rng.getrandbits(64))).run() for at in range(rng.randint(0, 2)))
        if rng.random() < 0.7:
            others.append(Janitor(hosts, ledger, Random(rng.getrandbits(64))).run())
    return writers, others


async def _until_done(work: list[asyncio.Task[None]], helpers: list[asyncio.Task[None]], nemesis: QueueNemesis) -> None:
    """Wait for all of the work; fail at once if any of it fails, or anything that goes on beside it."""
    pending = set(work)
    while pending:
        done, _ = await asyncio.wait([*pending, *helpers], timeout=0.5, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            if not task.cancelled():
                task.result()
        helpers = [task for task in helpers if not task.done()]
        pending -= done
        nemesis.raise_failures()


async def _judge(world: QueueWorld, hosts: Hosts, epoch: int) -> None:
    """Nothing is broken any more: the tablet serves, it holds all that it should, and nothing else is stored."""
    world.note("judge")
    for vdisk in world.vdisks().values():
        await vdisk.journal.commit()  # what began while a disk was slow is still slow
    if any(vdisk.journal.trouble is not None for vdisk in world.vdisks().values()):
        await asyncio.sleep(RETRY_MAX_S)  # a disk that has failed until now is not tried again at once
    instance = await hosts.boot_healthy()
    await hosts.stop_zombies()
    for ledger in hosts.ledgers.values():
        await _write_one(hosts, instance, ledger, f"{epoch}-{ledger.number}-judge")
        await read_whole(instance, ledger)
        if ledger.sizes.keys:
            await compact_whole(instance, ledger, SimClock(world.loop))
    # What this generation itself failed to write is found by the next.
    instance = await hosts.boot_healthy()
    await hosts.stop_zombies()
    await settle(world)
    world.check_tasks()
    await _check_garbage(world, hosts, instance)


async def _write_one(hosts: Hosts, instance: Instance, ledger: PartitionLedger, name: str) -> None:
    """On healthy storage a write succeeds, at once and at the end."""
    message = Message(name, 0, 0)
    raw = ledger.sizes.batch_of(ledger.number, [message], timestamp=0)
    own = instance.partition(ledger.number)
    end_offset = own.end_offset
    answer = await hosts.change(instance, own.write(raw, SourceWrite(name.encode(), 0)))
    require(answer == (end_offset, False), f"after {end_offset}, {message} was acknowledged as {answer}")
    ledger.acknowledge([message], answer.base_offset)


async def _check_garbage(world: QueueWorld, hosts: Hosts, instance: Instance) -> None:
    """Whatever no key refers to goes, sooner or later; and after a snapshot nothing is left of older ones, nor of their log."""
    tablet = instance.queue.tablet
    await instance.do(tablet.take_snapshot())
    for left in reversed(range(GARBAGE_ROUNDS_MAX)):
        await asyncio.sleep(hosts.settings.options.idle_garbage_s + (world.options.sync_interval or 0.0))
        kept, log, pages = await _listed(world, DATA), await _listed(world, LOG), await _listed(world, PAGES)
        lost = set(tablet.index.references) - kept
        require(not lost, f"keys refer to {sorted(lost)[:3]}, which are not there")
        leaked = kept - set(tablet.index.references)
        snapshots = {(page.generation, page.step) for page in pages}
        if not leaked and len(snapshots) <= 1 and len(log) <= LOG_ENTRIES_MAX + len(instance.queue.partitions):
            return
        require(left > 0, f"still there: {sorted(leaked)[:3]}, snapshots {sorted(snapshots)}, {len(log)} log entries")


async def _listed(world: QueueWorld, channel: int) -> set[BlobId]:
    first = BlobId(TABLET, channel, 0, 0, 0, 0)
    last = BlobId(TABLET, channel, GENERATION_MAX, STEP_MAX, COOKIE_MAX, 0)
    listing: RangeResult = await world.do(world.storage.tablet(INFO).range(first, last))
    require(listing.status is Status.OK, f"channel {channel} cannot be listed: {listing.reason}")
    return {blob for blob, _ in listing.blobs}
