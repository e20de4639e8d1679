"""Conversations with one partition, on a tablet over a simulated disk.

append a b [source=s seqno=1] [producer=7/0 sequence=0 [transactional=yes]]   a batch of messages, with the source that writes it
append a generation=1               the same, sent to a tablet of an earlier generation that has not noticed yet
append 20x1000                      a batch of 20 messages of 1000 bytes
mark 7/0 commit|abort               the coordinator ends the transaction of producer 7 in epoch 0
read 0 [committed=yes]              messages from an offset on; as a reader of committed data sees them
trim 3                              everything before an offset goes
storage ok|refuses|loses-answers    what becomes of writes to the disk from now on
restart                             the tablet starts again, in its next generation, from what is stored
config [head=3000]                  as the first command: how many bytes the head may have before it becomes a body
show                                prints the offsets
layout                              prints the pieces of the head and the bodies

Offsets move only when a write is durable, and a writer hears of it only then.
"""

from __future__ import annotations

import asyncio

from penstock.core.errors import PenstockError
from penstock.queue import Partition, PartitionConfig, QueueTablet, SourceWrite, WriteResult, make_marker, marker_source
from penstock.testing.batches import make_batch, values_of
from tests.conversations.script import Block, Command, unknown
from tests.sim_tablet import ANSWER_LOST, ERROR, FINE, LOG, SimNode, on_node

TRANSACTIONAL = 0x10
FATES = {"ok": FINE, "refuses": ERROR, "loses-answers": ANSWER_LOST}
ALL_BYTES = 1 << 20


class Conversation:
    """A partition and the disk under it."""

    def __init__(self, node: SimNode) -> None:
        self._node = node
        self._config = PartitionConfig()
        self._generation = 0
        self._tablets: dict[int, QueueTablet] = {}
        self._lines: list[str] = []

    async def answer(self, block: Block) -> list[str]:
        """Carry out commands; what comes back."""
        for command in block.commands:
            try:
                await self._carry_out(command)
            except PenstockError as error:
                self._lines.append(f"error {error.code}")
        lines, self._lines = self._lines, []
        return lines

    async def _carry_out(self, command: Command) -> None:
        match command.verb:
            case "config":
                self._config = PartitionConfig(low_watermark=command.number("head", self._config.low_watermark))
            case "append":
                await self._append(command)
            case "mark":
                await self._mark(command)
            case "read":
                await self._read(command)
            case "trim":
                self._lines.append(f"starts at {await (await self._partition()).trim(int(command.subject))}")
            case "storage":
                self._node.hooked.on(LOG, FATES[command.subject])
            case "restart":
                await self._boot()
                self._lines.append(f"generation {self._generation}")
            case "show":
                partition = await self._partition()
                offsets = f"start {partition.start_offset}, last stable {partition.stable_offset}, end {partition.end_offset}"
                self._lines.append(f"{offsets}, leader epoch {partition.epoch}")
            case "layout":
                self._print_layout(await self._partition())
            case _:
                raise unknown(command)

    async def _boot(self) -> QueueTablet:
        self._generation += 1
        tablet = self._tablets[self._generation] = await self._node.queue(self._generation, self._config)
        return tablet

    async def _partition(self, generation: int | None = None) -> Partition:
        if not self._tablets:
            return await (await self._boot()).add_partition(0)
        return self._tablets[generation or self._generation].partition(0)

    async def _append(self, command: Command) -> None:
        values = [value for word in command.arguments for value in _values(word)]
        source = None
        batch = make_batch(values)
        if "producer" in command.options:
            producer_id, epoch = _producer(command.options["producer"])
            sequence = command.number("sequence", 0)
            source = SourceWrite(b"k%d" % producer_id, sequence, epoch, contiguous=True)
            attributes = TRANSACTIONAL if "transactional" in command.options else 0
            batch = make_batch(
                values, attributes=attributes, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
            )
        elif "source" in command.options:
            source = SourceWrite(command.options["source"].encode(), command.number("seqno", 0))
        partition = await self._partition(command.number("generation", self._generation))
        async with asyncio.timeout(60):
            result = await partition.write(batch, source)
        self._print_result(result)

    async def _mark(self, command: Command) -> None:
        producer_id, epoch = _producer(command.subject)
        commit = command.arguments[1] == "commit"
        marker = make_marker(commit=commit, producer_id=producer_id, producer_epoch=epoch, coordinator_epoch=1, now_ms=0)
        result = await (await self._partition()).mark(marker, marker_source(b"k%d" % producer_id, epoch))
        self._print_result(result)

    def _print_result(self, result: WriteResult) -> None:
        offset = "unknown" if result.base_offset < 0 else result.base_offset
        self._lines.append(f"offset {offset}{', a duplicate' if result.duplicate else ''}")

    async def _read(self, command: Command) -> None:
        partition = await self._partition()
        committed = "committed" in command.options
        offset = int(command.subject)
        result = await partition.read(offset, ALL_BYTES, until=partition.stable_offset if committed else None)
        for at, value in values_of(b"".join(bytes(part) for part in result.batches if not hasattr(part, "length"))):
            self._lines.append(f"  {at} {_shown(value)}")
        if committed:
            for aborted in partition.aborted_between(offset, result.next_offset):
                self._lines.append(
                    f"  leave out producer {aborted.producer_id} from {aborted.first_offset} to {aborted.last_offset}: aborted"
                )
        self._lines.append(f"next offset {result.next_offset}")

    def _print_layout(self, partition: Partition) -> None:
        for body in partition.bodies:
            self._lines.append(f"  body {body.first_offset} to {body.next_offset - 1}")
        for piece in partition.head:
            self._lines.append(f"  head {piece.first_offset} to {piece.next_offset - 1}")


def _values(word: str) -> list[bytes]:
    times, by, size = word.partition("x")
    if by and times.isdigit() and size.isdigit():
        return [b"." * int(size)] * int(times)
    return [word.encode()]


def _shown(value: bytes) -> str:
    if value.startswith(b"\0"):
        return "(marker)"
    return value.decode() if len(value) < 20 else f"({len(value)} bytes)"


def _producer(word: str) -> tuple[int, int]:
    producer_id, _, epoch = word.partition("/")
    return int(producer_id), int(epoch)


def play(blocks: list[Block]) -> list[list[str]]:
    """Returns what a new partition answers to each block."""

    async def scenario(node: SimNode) -> list[list[str]]:
        conversation = Conversation(node)
        return [await conversation.answer(block) for block in blocks]

    return on_node(scenario)
