"""Random writes of several sources, repeats, trims, retention, reads and restarts of a partition, compared with a list."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, NamedTuple, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from penstock.core.errors import PenstockError
from penstock.queue import BlobCache, OffsetOutOfRangeError, PartitionConfig, SequenceError, SourceWrite, WriteResult
from penstock.testing.batches import make_batch, values_of
from penstock.testing.sim_loop import ProcessDiedError, SimLoop, SimProcess
from tests.sim_tablet import SimNode, content, history

T = TypeVar("T")

RECENT = 5
CONFIG = PartitionConfig(low_watermark=4000, retention_bytes=15_000, important_consumers=frozenset({"important"}))

sources = st.sampled_from([b"one", b"two", b"kafka"])
counts = st.integers(1, 4)
sizes = st.sampled_from([1, 30, 200, 700, 2500, 9000])


class Sent(NamedTuple):
    """A batch that a source has sent."""

    source: bytes
    seqno: int
    messages: int
    values: tuple[bytes, ...]

    @property
    def write(self) -> SourceWrite:
        """Who writes it."""
        return SourceWrite(self.source, self.seqno, 0, contiguous=self.source == b"kafka")

    @property
    def raw(self) -> bytes:
        """The batch."""
        return make_batch(self.values)


class PartitionMachine(RuleBasedStateMachine):
    """One partition, and the list of values that it should be. `sent` has what each source wrote since it was known."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = SimLoop(shuffle_ties=True)
        self.node = SimNode(loop=self.loop)
        self.generation = 0
        self.serial = 0
        self.values: dict[int, bytes] = {}
        self.sent: dict[bytes, list[tuple[Sent, int]]] = {}
        self.next_seqno = dict.fromkeys((b"one", b"two", b"kafka"), 0)
        self.start = self.end = 0
        self.position = 0
        self.process = SimProcess(self.loop, "node")

    @initialize(first_offset=st.sampled_from([0, 5, 1 << 40]))
    def begin(self, first_offset: int) -> None:
        self.start = self.end = first_offset
        self._boot()
        self._do(self.tablet.add_partition(0, first_offset))
        self.partition = self.tablet.partition(0)

    def teardown(self) -> None:
        try:
            if self.generation:
                self._compare()
                self._do(self.node.close())
            self.loop.cancel_leftovers()
        finally:
            self.loop.close()
        assert self.loop.unhandled == []

    def _boot(self) -> None:
        self.generation += 1
        self.node.cache = BlobCache(bytes_max=12_000)
        self.tablet = self._do(self.node.queue(self.generation, CONFIG))

    def _kill(self) -> None:
        self.process.crash()
        self.process = SimProcess(self.loop, f"node-{self.generation}")
        self.node.start()

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(self.process.call(work))

    def _new_batch(self, source: bytes, count: int, size: int, gap: int) -> Sent:
        self.serial += 1
        seqno = self.next_seqno[source] + (0 if source == b"kafka" else gap)
        self.next_seqno[source] = seqno + count
        values = tuple(b"%d/%d/" % (self.serial, each) + content(size, self.serial) for each in range(count))
        return Sent(source, seqno, count, values)

    def _accept(self, batch: Sent) -> int:
        base = self.end
        for each, value in enumerate(batch.values):
            self.values[base + each] = value
        self.end += batch.messages
        self.sent.setdefault(batch.source, []).append((batch, base))
        return base

    def _cut(self, offset: int) -> None:
        for gone in range(self.start, offset):
            del self.values[gone]
        self.start = offset

    def _compare(self) -> None:
        partition = self.partition
        assert (partition.start_offset, partition.end_offset) == (self.start, self.end)
        assert self._do(history(partition, 3000)) == sorted(self.values.items())

    @rule(batches=st.lists(st.tuples(sources, counts, sizes, st.integers(0, 3)), min_size=1, max_size=6))
    def write(self, batches: list[tuple[bytes, int, int, int]]) -> None:
        """Batches sent at once get offsets in their order."""
        asked = [self._new_batch(*batch) for batch in batches]

        async def send() -> list[WriteResult]:
            return await asyncio.gather(*(self.partition.write(batch.raw, batch.write) for batch in asked))

        answers = self._do(send())
        for batch, answer in zip(asked, answers, strict=True):
            assert answer == WriteResult(self._accept(batch), duplicate=False)

    @rule(source=sources, back=st.integers(1, 8))
    def repeat(self, source: bytes, back: int) -> None:
        """What a source sends again is known, with its offset if it is recent."""
        known = self.sent.get(source, [])
        if len(known) < back:
            return
        batch, base = known[-back]
        answer = self._do(self.partition.write(batch.raw, batch.write))
        assert answer == WriteResult(base if back <= RECENT else -1, duplicate=True)
        assert self.partition.end_offset == self.end

    @rule(source=sources)
    def overlap(self, source: bytes) -> None:
        """What is half written is refused."""
        if source not in self.sent:
            return
        batch, _ = self.sent[source][-1]
        half = SourceWrite(source, batch.seqno + batch.messages - 1, 0, contiguous=source == b"kafka")
        outcome = self._do(_caught(partial(self.partition.write, make_batch([b"x", b"y"]), half)))
        assert isinstance(outcome, SequenceError), outcome

    @rule(size=sizes)
    def write_without_a_source(self, size: int) -> None:
        self.serial += 1
        value = b"%d/" % self.serial + content(size, self.serial)
        assert self._do(self.partition.write(make_batch([value]))) == WriteResult(self.end, duplicate=False)
        self.values[self.end] = value
        self.end += 1

    @rule(data=st.data())
    def trim(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(self.start, self.end))
        assert self._do(self.partition.trim(offset)) == offset
        self._cut(offset)

    @rule(data=st.data())
    def retain(self, data: st.DataObject) -> None:
        self.position = data.draw(st.integers(self.start, self.end))
        self._do(self.partition.commit("important", self.position))
        gone = self._do(self.partition.retain())
        assert self.start + gone == self.partition.start_offset <= self.position or gone == 0
        self._cut(self.start + gone)
        assert self.partition.size >= CONFIG.retention_bytes or gone == 0  # type: ignore[operator]
        for source in list(self.sent):
            batch, base = self.sent[source][-1]
            if base + batch.messages <= self.start:
                del self.sent[source]
            assert (self.partition.source(source) is None) == (source not in self.sent)

    @rule(data=st.data(), bytes_max=st.sampled_from([1, 500, 5000, 10**6]))
    def read(self, data: st.DataObject, bytes_max: int) -> None:
        offset = data.draw(st.integers(max(0, self.start - 3), self.end + 2))
        if offset > self.end:
            assert isinstance(self._do(_caught(partial(self.partition.read, offset, bytes_max))), OffsetOutOfRangeError)
            return
        result = self._do(self.partition.read(offset, bytes_max))
        found = values_of(b"".join(bytes(batch) for batch in result.batches))  # type: ignore[arg-type]  # no files here
        first = max(offset, self.start)
        assert [message for message in found if message[0] >= first] == [
            (place, self.values[place]) for place in range(first, result.next_offset)
        ]
        assert result.next_offset > first or first == self.end
        assert (result.start_offset, result.end_offset) == (self.start, self.end)

    @rule()
    def maintain(self) -> None:
        self._do(self.tablet.tablet.take_snapshot())
        self._do(self.tablet.tablet.collect_garbage())

    @rule(kill=st.booleans())
    def restart(self, kill: bool) -> None:
        if kill:
            self._kill()
        else:
            self._do(self.tablet.stop())
        self._boot()
        self.partition = self.tablet.partition(0)
        assert self.partition.committed("important") == (self.position or None) or self.position == 0
        self._compare()

    @rule(source=sources, count=counts, size=sizes, steps=st.integers(0, 30))
    def crash_during_a_write(self, source: bytes, count: int, size: int, steps: int) -> None:
        """Whatever became of it, sent again it is there once."""
        batch = self._new_batch(source, count, size, 0)
        self.process.crash_at_step(self.process.steps + steps)
        acknowledged = False
        try:
            answer = self._do(self.partition.write(batch.raw, batch.write))
            assert answer == WriteResult(self.end, duplicate=False)
            acknowledged = True
        except ProcessDiedError:
            pass
        self._kill()
        self._boot()
        self.partition = self.tablet.partition(0)
        answer = self._do(self.partition.write(batch.raw, batch.write))
        assert answer.duplicate or not acknowledged
        assert answer.base_offset == self._accept(batch)
        self._compare()


async def _caught(start: Callable[[], Coroutine[Any, Any, object]]) -> BaseException | None:
    try:
        await start()
    except PenstockError as error:
        return error
    return None


@pytest.mark.parametrize("count", [25, pytest.param(160, marks=(pytest.mark.soak, pytest.mark.timeout(3600)))])
def test_the_partition_answers_as_the_model_does(count: int) -> None:
    run_state_machine_as_test(
        PartitionMachine,
        settings=settings(
            max_examples=count, stateful_step_count=40, deadline=None, derandomize=True, report_multiple_bugs=False
        ),
    )
