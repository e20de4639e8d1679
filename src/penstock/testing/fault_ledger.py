"""What the fault simulation knows of every command: what was tried, what was acknowledged, and so what may be answered.

A blob is *due* once it was acknowledged and nothing that was ever tried can have ended it: it must read. It is *over* once an
acknowledged barrier has ended it: after the disks have settled it must be gone, and what was seen gone never comes back. Between
the two, and for puts without an answer, both are right, but never other bytes.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from penstock.blob import BlobId, DiscoverResult, Erasure, GetResult, RangeResult, Reply, Status
from penstock.blob.quorum import fits_fail_model

Moment = tuple[int, int]
"""Generation and step."""

NOTHING: Moment = (-1, -1)


class InvariantError(AssertionError):
    """A promise of BlobStorage does not hold."""


def require(condition: bool, told: str) -> None:
    """Raise InvariantError unless the condition holds."""
    if not condition:
        raise InvariantError(told)


def data_of(blob_id: BlobId) -> bytes:
    """The only bytes that a blob of this id may have."""
    return random.Random(str(blob_id)).randbytes(blob_id.size)


@dataclass(slots=True)
class Interval:
    """What befell the group while a command ran."""

    failed: int = 0  # every disk that was impaired at some time, as a mask of order numbers
    moved: bool = False
    flooded: bool = False
    deadline: bool = False

    def excuses(self, erasure: Erasure) -> bool:
        """Whether more was wrong than the group must bear."""
        return not fits_fail_model(erasure, self.failed)


@dataclass(slots=True)
class BlobFate:
    """What is known of one blob."""

    blob_id: BlobId
    acked: bool = False
    fenced: bool = False  # its put began after its generation was blocked: it must never be there
    keep: bool = False
    unkeep_tried: bool = False
    unkeep_acked: bool = False
    gone: bool = False  # it was seen to be gone for good
    rotten: bool = False  # its only copy was spoiled

    @property
    def moment(self) -> Moment:
        return self.blob_id.generation, self.blob_id.step


@dataclass(slots=True)
class ChannelLedger:
    """Blobs and barriers of one channel; barriers by hardness."""

    blobs: dict[BlobId, BlobFate] = field(default_factory=dict)
    tried: dict[bool, Moment] = field(default_factory=lambda: {False: NOTHING, True: NOTHING})
    acked: dict[bool, Moment] = field(default_factory=lambda: {False: NOTHING, True: NOTHING})

    def is_over(self, fate: BlobFate) -> bool:
        """Whether acknowledged barriers have ended the blob."""
        if fate.moment <= self.acked[True]:
            return True
        return fate.moment <= self.acked[False] and (not fate.keep or fate.unkeep_acked)

    def may_be_over(self, fate: BlobFate) -> bool:
        """Whether anything that was tried can have ended the blob."""
        if fate.moment <= self.tried[True]:
            return True
        return fate.moment <= self.tried[False] and (not fate.keep or fate.unkeep_tried)

    def due(self) -> set[BlobId]:
        """Blobs that must read."""
        return {fate.blob_id for fate in self.blobs.values() if fate.acked and not self.may_be_over(fate)}


@dataclass(slots=True)
class TabletLedger:
    """One tablet: its channels, and the generations that were blocked (highest that may change nothing)."""

    channels: dict[int, ChannelLedger]
    block_tried: int = -1
    block_acked: int = -1
    starters: dict[int, int] = field(default_factory=dict)  # generation: the issuer that was told OK


class Ledger:
    """The judge of every answer."""

    def __init__(self, erasure: Erasure, tablets: Iterable[int], channels: Iterable[int]) -> None:
        self.erasure = erasure
        channel_ids = tuple(channels)
        self.tablets = {tablet: TabletLedger({channel: ChannelLedger() for channel in channel_ids}) for tablet in tablets}
        self.counts: dict[str, int] = {}
        self.rotten = False  # whether something was spoiled of which there is no other copy

    def channel(self, blob_id: BlobId) -> ChannelLedger:
        return self.tablets[blob_id.tablet].channels[blob_id.channel]

    def fates(self) -> list[tuple[ChannelLedger, BlobFate]]:
        """All blobs that were ever tried."""
        channels = (channel for tablet in self.tablets.values() for channel in tablet.channels.values())
        return [(channel, fate) for channel in channels for fate in channel.blobs.values()]

    # Before a command goes out.

    def try_put(self, blob_id: BlobId) -> BlobFate:
        blobs = self.channel(blob_id).blobs
        if blob_id not in blobs:
            blobs[blob_id] = BlobFate(blob_id, fenced=blob_id.generation <= self.tablets[blob_id.tablet].block_acked)
        return blobs[blob_id]

    def try_collect(
        self, tablet: int, channel: int, barrier: Moment | None, *, hard: bool, keep: list[BlobId], do_not_keep: list[BlobId]
    ) -> None:
        ledger = self.tablets[tablet].channels[channel]
        for blob_id in keep:
            ledger.blobs[blob_id].keep = True
        for blob_id in do_not_keep:
            ledger.blobs[blob_id].unkeep_tried = True
        if barrier is not None:
            ledger.tried[hard] = max(ledger.tried[hard], barrier)

    def try_block(self, tablet: int, generation: int) -> None:
        ledger = self.tablets[tablet]
        ledger.block_tried = max(ledger.block_tried, generation - 1)

    # The answers.

    def judge_put(self, fate: BlobFate, blocked_before: int, reply: Reply, interval: Interval) -> None:
        blob_id = fate.blob_id
        self._count("put", reply.status)
        ledger = self.tablets[blob_id.tablet]
        if reply.status is Status.OK:
            require(blob_id.generation > blocked_before, f"put of {blob_id} was OK after the block of {blocked_before}")
            require(not fate.gone, f"put of {blob_id}, which is gone, was OK")
            fate.acked = True
        elif reply.status is Status.BLOCKED:
            require(blob_id.generation <= ledger.block_tried, f"put of {blob_id} was BLOCKED, blocks go to {ledger.block_tried}")
        elif reply.status is Status.OUT_OF_SPACE:
            require(interval.flooded or interval.excuses(self.erasure), f"put of {blob_id} found no space: {reply.reason}")
        else:
            refused = self.channel(blob_id).may_be_over(fate)
            self._judge_failure(f"put of {blob_id}", reply, interval, forgiven=interval.flooded or refused)

    def judge_get(
        self, fate: BlobFate, was_due: bool, window: tuple[int, int | None], result: GetResult, interval: Interval
    ) -> None:
        blob_id = fate.blob_id
        channel = self.channel(blob_id)
        self._count("get", result.status)
        if result.status is Status.OK:
            require(bytes(result.data) == _window(blob_id, window), f"get of {blob_id} {window} gave other bytes")
            self._require_possible(fate, "get")
        elif result.status is Status.NODATA:
            lost = was_due and not channel.may_be_over(fate) and not fate.rotten
            require(not lost, f"get of {blob_id} gave NODATA though it was acknowledged and is not collected")
        else:
            # A lone disk that has lost something cannot prove the absence of anything.
            lossy = self.erasure is Erasure.NONE and self.rotten
            doubtful = (interval.failed != 0 or lossy) and not (was_due and not channel.may_be_over(fate))
            self._judge_failure(f"get of {blob_id}", result, interval, forgiven=doubtful or fate.rotten)

    def judge_range(
        self, first: BlobId, last: BlobId, due_before: set[BlobId], result: RangeResult, interval: Interval, *, with_data: bool
    ) -> None:
        self._count("range", result.status)
        channel = self.channel(first)
        low, high = min(first, last), max(first, last)
        if result.status is not Status.OK:
            forgiven = _may_not_list(channel, due_before, interval)
            self._judge_failure(f"range {first}..{last}", result, interval, forgiven=forgiven)
            return
        listed = [blob_id for blob_id, _ in result.blobs]
        require(listed == sorted(set(listed), reverse=first > last), f"range {first}..{last} is out of order")
        require(all(low <= blob_id <= high for blob_id in listed), f"range {first}..{last} has blobs from outside")
        missing = {blob_id for blob_id in due_before & channel.due() - set(listed) if low <= blob_id <= high}
        missing = {blob_id for blob_id in missing if not channel.blobs[blob_id].rotten}
        require(not missing, f"range {first}..{last} does not list {_some(missing)}")
        self._take_listed(channel, result.blobs, with_data=with_data, told=f"range {first}..{last}")

    def judge_discover(
        self,
        command: tuple[int, int, int],
        due_before: set[BlobId],
        blocked_before: int,
        result: DiscoverResult,
        interval: Interval,
    ) -> None:
        """A command of (tablet, least generation, limit)."""
        self._count("discover", result.status)
        tablet, min_generation, limit = command
        ledger = self.tablets[tablet]
        channel = ledger.channels[0]
        told = f"discover of tablet {tablet}"
        if result.status not in (Status.OK, Status.NODATA):
            self._judge_failure(told, result, interval, forgiven=_may_not_list(channel, due_before, interval))
            return
        in_bounds = blocked_before <= result.blocked_generation <= ledger.block_tried
        require(in_bounds, f"{told} tells block {result.blocked_generation}, acknowledged was {blocked_before}")
        listed = [blob_id for blob_id, _ in result.blobs]
        require(listed == sorted(set(listed), reverse=True) and len(listed) <= limit, f"{told} is out of order: {_some(listed)}")
        reach = listed[-1] if len(listed) == limit else BlobId(tablet, 0, min_generation, 0, 0, 0)
        missing = {blob_id for blob_id in due_before & channel.due() - set(listed) if blob_id > reach}
        missing = {blob_id for blob_id in missing if not channel.blobs[blob_id].rotten}
        require(not missing, f"{told} found {_some(listed)} and not {_some(missing)}")
        self._take_listed(channel, result.blobs, with_data=True, told=told)

    def judge_collect(self, command: tuple[int, int, int], blocked_before: int, reply: Reply, interval: Interval) -> None:
        """A command of (tablet, channel, generation); what it tells of the blobs is noted by `acknowledge_collect`."""
        tablet, channel, generation = command
        told = f"collect of channel {channel} of tablet {tablet} in generation {generation}"
        self._count("collect", reply.status)
        if reply.status is Status.OK:
            require(generation > blocked_before, f"{told} was OK after the block of {blocked_before}")
        elif reply.status is Status.BLOCKED:
            require(generation <= self.tablets[tablet].block_tried, f"{told} was BLOCKED")
        else:
            self._judge_failure(told, reply, interval, forgiven=interval.flooded)

    def acknowledge_collect(
        self, tablet: int, channel: int, barrier: Moment | None, *, hard: bool, do_not_keep: list[BlobId]
    ) -> None:
        ledger = self.tablets[tablet].channels[channel]
        for blob_id in do_not_keep:
            ledger.blobs[blob_id].unkeep_acked = True
        if barrier is not None:
            ledger.acked[hard] = max(ledger.acked[hard], barrier)

    def judge_block(self, command: tuple[int, int, int], before: int, reply: Reply, interval: Interval) -> None:
        """A command of (tablet, generation, issuer), when generations up to `before` were known to be blocked."""
        tablet, generation, issuer = command
        ledger = self.tablets[tablet]
        told = f"block of tablet {tablet} for generation {generation}"
        self._count("block", reply.status)
        if reply.status is Status.OK:
            require(generation - 1 >= before, f"{told} was OK after the block of {before}")
            starter = ledger.starters.setdefault(generation, issuer)
            require(starter == issuer, f"{told} was OK for two rivals")
            ledger.block_acked = max(ledger.block_acked, generation - 1)
        elif reply.status not in (Status.ALREADY, Status.BLOCKED):
            self._judge_failure(told, reply, interval, forgiven=interval.flooded)

    def _judge_failure(self, told: str, reply: Reply | GetResult | RangeResult | DiscoverResult, interval: Interval, *,
                       forgiven: bool) -> None:  # fmt: skip
        text = f"{told} gave {reply.status.name} with {interval}: {reply.reason}"
        if reply.status is Status.RACE:
            require(interval.moved, text)
        elif reply.status is Status.DEADLINE:
            require(interval.deadline, text)
        else:
            require(reply.status is Status.ERROR, text)
            require(forgiven or interval.excuses(self.erasure), text)

    def _require_possible(self, fate: BlobFate, told: str) -> None:
        require(not fate.gone, f"{told} found {fate.blob_id}, which was gone")
        # A fenced writer may leave parts on the few disks that have not heard of the block. They are enough to give a get its
        # bytes, and in a mirror to be taken for a blob.
        tolerated = self.erasure.is_mirror or (self.erasure is Erasure.BLOCK_4_2 and told == "get")
        require(not fate.fenced or tolerated, f"{told} found {fate.blob_id}, whose put began after the block")

    def _take_listed(
        self, channel: ChannelLedger, blobs: Sequence[tuple[BlobId, bytes | memoryview | None]], *, with_data: bool, told: str
    ) -> None:
        for blob_id, data in blobs:
            fate = channel.blobs.get(blob_id)
            if fate is None:
                raise InvariantError(f"{told} lists {blob_id}, which was never written")
            self._require_possible(fate, told)
            if with_data:
                require(data is not None and bytes(data) == data_of(blob_id), f"{told} gives other bytes for {blob_id}")
            fate.acked = True

    def _count(self, command: str, status: Status) -> None:
        key = f"{command} {status.name}"
        self.counts[key] = self.counts.get(key, 0) + 1


def _may_not_list(channel: ChannelLedger, due_before: set[BlobId], interval: Interval) -> bool:
    """What is only partly written must be completed before it is listed, and full disks do not allow that. Where disks are out,
    what was acknowledged may look so, too."""
    doubtful = any(id_ not in due_before or channel.may_be_over(fate) for id_, fate in channel.blobs.items())
    rotten = any(fate.rotten for fate in channel.blobs.values())
    is_impaired = interval.failed != 0
    return (doubtful and (is_impaired or interval.flooded)) or (is_impaired and interval.flooded) or rotten


def _window(blob_id: BlobId, window: tuple[int, int | None]) -> bytes:
    offset, length = window
    data = data_of(blob_id)
    return data[offset:] if length is None else data[offset : offset + length]


def _some(blob_ids: Iterable[BlobId]) -> str:
    ordered = sorted(blob_ids)
    return ", ".join(map(str, ordered[:5])) + (f" and {len(ordered) - 5} more" if len(ordered) > 5 else "") or "nothing"
