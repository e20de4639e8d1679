"""What must be true of a group that has been healed and has settled: everything, and not only what a command happens to show."""

from __future__ import annotations

import asyncio

from penstock.blob import BlobId, Erasure, Status
from penstock.blob.blob_id import CHANNEL_KEY_SIZE, COOKIE_MAX, GENERATION_MAX, PREFIX_SIZE, STEP_MAX
from penstock.blob.channel import Channel, place_of
from penstock.blob.journal import RETRY_MAX_S
from penstock.blob.topology import main_part
from penstock.testing.fault_ledger import BlobFate, ChannelLedger, Ledger, require
from penstock.testing.fault_world import World

TEND_ROUNDS = 12


async def settle(world: World) -> None:
    """Let commands end, every disk hear of everything, and every part go where it belongs."""
    await world.do(world.life.group.drain())
    for _ in range(3):
        await world.do(world.life.sync())
    for _ in range(3):
        await world.do(world.life.replicate())
    interval = world.options.sync_interval
    if interval is not None:
        await asyncio.sleep(interval + RETRY_MAX_S)  # a disk that was failing is tried again
    for _ in range(TEND_ROUNDS):
        await (world.do(world.life.tend()) if interval is None else asyncio.sleep(interval + 0.05))
    await world.do(world.life.group.drain())


async def check_settled(world: World, ledger: Ledger) -> None:
    """Check all invariants of a healthy group."""
    world.check_tasks()
    require(set(world.vdisks()) == set(world.orders), f"only disks {sorted(world.vdisks())} are in")
    await _check_listings(world, ledger)
    for channel, fate in ledger.fates():
        await _check_blob(world, ledger, channel, fate)
    _check_agreement(world)
    _check_usage(world, ledger)
    damaged = await world.do(world.life.scrub())
    require(damaged == 0 or ledger.rotten, f"a scrub after healing finds {damaged} damaged parts")


async def _check_blob(world: World, ledger: Ledger, channel: ChannelLedger, fate: BlobFate) -> None:
    """Whether the blob is there; it must be or must not, where that is known."""
    blob_id = fate.blob_id
    with world.watch() as interval:
        result = await world.do(world.life.proxy.get(blob_id))
    ledger.judge_get(fate, fate.acked, (0, None), result, interval)
    if result.status is not Status.OK:
        # With every disk up, what has no part anywhere cannot come to be there.
        fate.gone = not fate.rotten and not any(_held(world, order, blob_id) for order in world.orders)
        require(fate.gone or fate.rotten or not channel.is_over(fate), f"{blob_id} is collected and some parts are still there")
        return
    require(not channel.is_over(fate), f"{blob_id} is collected and still there")
    # What no listing shows was never acknowledged, though the few parts there are may happen to give it.
    if fate.acked and not fate.rotten:
        _check_places(world, blob_id)


def _check_places(world: World, blob_id: BlobId) -> None:
    """Each part is where it belongs, and nowhere else."""
    for index, order in enumerate(world.life.group.subgroup(blob_id.pack()[:PREFIX_SIZE])):
        own = main_part(world.erasure, index)
        held = _held(world, order, blob_id)
        wanted = {own: False} if own else {}
        require(held == wanted, f"disk {order} (place {index}) holds parts {held} of {blob_id} (True: damaged), not {wanted}")


def _held(world: World, order: int, blob_id: BlobId) -> dict[int, bool]:
    """The parts of a blob on a disk, each with whether it is damaged."""
    packed = blob_id.pack()
    channel = world.vdisks()[order].index.channels.get(packed[:CHANNEL_KEY_SIZE])
    places = map(place_of, () if channel is None else channel.entries(packed[CHANNEL_KEY_SIZE:PREFIX_SIZE]))
    return {place.part: place.damaged for place in places if place.part}


async def _check_listings(world: World, ledger: Ledger) -> None:
    for tablet, mine in ledger.tablets.items():
        for channel_id, channel in mine.channels.items():
            first = BlobId(tablet, channel_id, 0, 0, 0, 0)
            last = BlobId(tablet, channel_id, GENERATION_MAX, STEP_MAX, COOKIE_MAX, 0)
            with world.watch() as interval:
                result = await world.do(world.life.proxy.range(first, last))
            ledger.judge_range(first, last, channel.due(), result, interval, with_data=False)
            over = [blob_id for blob_id, _ in result.blobs if channel.is_over(channel.blobs[blob_id])]
            require(not over, f"range of channel {channel_id} of tablet {tablet} lists {over}, which are collected")
        with world.watch() as interval:
            discovered = await world.do(world.life.proxy.discover(tablet, limit=1))
        ledger.judge_discover((tablet, 0, 1), mine.channels[0].due(), mine.block_acked, discovered, interval)


def _check_agreement(world: World) -> None:
    """All disks know the same blocks, barriers and flags."""
    views = {order: _knowledge(vdisk.index.channels) for order, vdisk in world.vdisks().items()}
    tablets = sorted({tablet for vdisk in world.vdisks().values() for tablet in vdisk.index.blocks})
    for order, vdisk in world.vdisks().items():
        blocks = [vdisk.index.blocked_generation(tablet) for tablet in tablets]
        first = [world.vdisks()[0].index.blocked_generation(tablet) for tablet in tablets]
        require(blocks == first, f"disk {order} has blocks {blocks}, disk 0 has {first}")
        differing = sorted(set(views[order].items()) ^ set(views[0].items()), key=repr)[:4]
        require(not differing, f"disks {order} and 0 differ in {differing}")


def _knowledge(channels: dict[bytes, Channel]) -> dict[bytes, object]:
    known: dict[bytes, object] = {}
    for channel_key, channel in channels.items():
        for name, barrier in ((b"soft", channel.soft), (b"hard", channel.hard)):
            if barrier.own is not None:
                known[channel_key + name] = (barrier.own[2:5], barrier.acting)
        for key in channel.blobs:
            if channel.flags(key) and not channel.is_garbage(key):
                known[channel_key + key] = channel.flags(key)
    return known


def _check_usage(world: World, ledger: Ledger) -> None:
    """A disk takes not much more room than what lives on it."""
    if world.erasure is Erasure.NONE and any(fate.rotten for _, fate in ledger.fates()):
        return
    options = world.options.vdisk
    for order, vdisk in world.vdisks().items():
        live = sum(use.live for use in vdisk.index.chunks.values())
        allowance = 16 * options.chunk_size + 2 * options.checkpoint_bytes + 64 * vdisk.index.parts
        used = world.platters[order].used
        require(used <= live / options.sparse_ratio + allowance, f"disk {order} uses {used} bytes for {live} that live")
