"""Random commands, restarts and disk failures on groups of every kind, each answer compared with that of the model."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from penstock.blob import BLOB_SIZE_MAX, BlobId, Erasure, Status
from penstock.blob.quorum import fits_fail_model
from penstock.testing.blob_model import DO_NOT_KEEP, BlobModel
from penstock.testing.sim_loop import ProcessDiedError, SimLoop
from tests.sim_group import SimGroup, payload

T = TypeVar("T")

TABLETS, CHANNELS, GENERATIONS, STEPS = (1, 2), (0, 1), 3, 5
SIZES = (1, 129, 3000, 70_000)
UNCERTAIN_COOKIE = 100  # and above: blobs whose put was cut short by a crash
TOO_LARGE = bytes(BLOB_SIZE_MAX + 1)

tablets = st.sampled_from(TABLETS)
channels = st.sampled_from(CHANNELS)
generations = st.integers(1, GENERATIONS)
moments = st.tuples(generations, st.integers(0, STEPS))


@st.composite
def blob_ids(draw: st.DrawFn) -> BlobId:
    """Ids from a small space, so that they meet; all but a few agree on the size that goes with a prefix."""
    tablet, channel, (generation, step), cookie = draw(tablets), draw(channels), draw(moments), draw(st.integers(0, 1))
    usual = SIZES[(tablet + channel + generation + 3 * step + cookie) % len(SIZES)]
    size = draw(st.sampled_from(SIZES)) if draw(st.integers(0, 9)) == 0 else usual
    return BlobId(tablet, channel, generation, step, cookie, size)


class BlobMachine(RuleBasedStateMachine):
    """One group and one model. Each change is let to settle before the next command."""

    erasure: Erasure

    def __init__(self) -> None:
        super().__init__()
        self.loop = SimLoop(shuffle_ties=True)
        self.model = BlobModel()
        self.group = SimGroup(self.erasure, loop=self.loop)
        self.uncertain = 0
        self._do(self.group.start())

    def teardown(self) -> None:
        try:
            if sys.exc_info()[0] is None:  # after a failure there is nothing to add
                self._compare_everything()
                self._do(self.group.do(self.group.life.stop()))
                assert self.loop.unhandled == []
        finally:
            self.loop.cancel_leftovers()
            self.loop.close()

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    def _compare_everything(self) -> None:
        for tablet in TABLETS:
            for channel in CHANNELS:
                first, last = BlobId(tablet, channel, 0, 0, 0, 0), BlobId(tablet, channel, GENERATIONS + 1, 0, 0, 0)
                answer = self._do(self.group.do(self.group.proxy.range(first, last, with_data=True)))
                assert answer.status is Status.OK, answer.reason
                assert [(blob_id, bytes(data or b"")) for blob_id, data in answer.blobs] == self.model.range(first, last)

    @rule(blob_id=blob_ids(), seed=st.sampled_from((0, 0, 0, 0, 1)))
    def put(self, blob_id: BlobId, seed: int) -> None:
        data = payload(blob_id.size, seed)
        reply = self._do(self.group.do(self.group.proxy.put(blob_id, data)))
        assert reply.status is self.model.put(blob_id, data), reply.reason
        self._do(self.group.settle())

    @rule(ids=st.lists(blob_ids(), min_size=2, max_size=12, unique_by=lambda blob_id: blob_id[:5]))
    def put_at_once(self, ids: list[BlobId]) -> None:
        async def put_all() -> list[Status]:
            replies = await asyncio.gather(*(self.group.proxy.put(blob_id, payload(blob_id.size)) for blob_id in ids))
            return [reply.status for reply in replies]

        assert self._do(self.group.do(put_all())) == [self.model.put(blob_id, payload(blob_id.size)) for blob_id in ids]
        self._do(self.group.settle())

    @rule(blob_id=blob_ids(), change=st.sampled_from(("short", "long", "part", "empty", "too large")))
    def put_wrongly(self, blob_id: BlobId, change: str) -> None:
        data = payload(blob_id.size)
        if change == "short":
            data = data[:-1]
        elif change == "long":
            data += b"!"
        elif change == "part":
            blob_id = blob_id._replace(part=1)
        elif change == "empty":
            blob_id, data = blob_id._replace(size=0), b""
        else:
            blob_id, data = blob_id._replace(size=len(TOO_LARGE)), TOO_LARGE
        assert self.model.put(blob_id, data) is Status.ERROR
        reply = self._do(self.group.do(self.group.proxy.put(blob_id, data)))
        assert reply.status is Status.ERROR
        assert reply.reason

    @rule(blob_id=blob_ids(), part=st.sampled_from((0, 0, 0, 0, 0, 1)), data=st.data())
    def get(self, blob_id: BlobId, part: int, data: st.DataObject) -> None:
        blob_id = blob_id._replace(part=part)
        offset = data.draw(st.sampled_from((0, 0, 1, blob_id.size // 2, blob_id.size - 1, blob_id.size)), label="offset")
        length = data.draw(st.sampled_from((None, None, 0, 1, 40, blob_id.size)), label="length")
        result = self._do(self.group.do(self.group.proxy.get(blob_id, offset, length)))
        assert (result.status, bytes(result.data)) == self.model.get(blob_id, offset, length), result.reason

    @rule(tablet=tablets, generation=st.sampled_from((0, 1, 1, 1, 1, 2, 2, 3)), issuer=st.integers(1, 2))
    def block(self, tablet: int, generation: int, issuer: int) -> None:
        reply = self._do(self.group.do(self.group.proxy.block(tablet, generation, issuer)))
        assert reply.status is self.model.block(tablet, generation, issuer), reply.reason
        self._do(self.group.settle())

    @rule(tablet=tablets, channel=channels, key=moments, barrier=st.none() | moments, data=st.data())
    def collect_garbage(
        self, tablet: int, channel: int, key: tuple[int, int], barrier: tuple[int, int] | None, data: st.DataObject
    ) -> None:
        hard = data.draw(st.sampled_from((False, False, False, False, True)), label="hard")
        keep: list[BlobId] = []
        drop: list[BlobId] = []
        if not hard:
            keep = data.draw(self._blobs_to_flag(tablet, channel), label="keep")
            drop = data.draw(self._blobs_to_flag(tablet, channel), label="do not keep")
            # Of a blob that DoNotKeep has ended nothing is remembered, so a Keep that comes after is one for a new blob:
            # that breaks the order of the seed, and either answer is right.
            ended = [each for each in keep if self.model.is_garbage(each) and self.model.flags.get(each[:5], 0) & DO_NOT_KEEP]
            keep = [each for each in keep if each not in ended]
        work = self.group.proxy.collect_garbage(tablet, channel, *key, barrier=barrier, hard=hard, keep=keep, do_not_keep=drop)
        reply = self._do(self.group.do(work))
        expected = self.model.collect_garbage(tablet, channel, *key, barrier=barrier, hard=hard, keep=keep, do_not_keep=drop)
        assert reply.status is expected, reply.reason
        self._do(self.group.settle())

    def _blobs_to_flag(self, tablet: int, channel: int) -> st.SearchStrategy[list[BlobId]]:
        written = [blob_id for blob_id, _ in self.model.blobs.values() if blob_id[:2] == (tablet, channel)]
        anything = blob_ids().map(lambda blob_id: blob_id._replace(tablet=tablet, channel=channel))
        return st.lists(st.sampled_from(written) | anything if written else anything, max_size=3)

    @rule(tablet=tablets, channel=channels, data=st.data())
    def collect_next(self, tablet: int, channel: int, data: st.DataObject) -> None:
        """What a tablet that behaves would send: the barrier up to a blob that is there, and the next counter."""
        written = sorted(blob_id for blob_id, _ in self.model.blobs.values() if blob_id[:2] == (tablet, channel))
        if not written:
            return
        at = data.draw(st.integers(0, len(written) - 1), label="up to")
        kept = data.draw(st.lists(st.sampled_from(written[: at + 1]), max_size=2), label="keep")
        held = self.model.barriers.get((tablet, channel, False), ((0, 0), (0, 0)))
        key = max((self.model.blocked_generation(tablet) + 1, 0), (held[0][0], held[0][1] + 1))
        barrier = max(held[1], written[at][2:4])
        reply = self._do(self.group.do(self.group.proxy.collect_garbage(tablet, channel, *key, barrier=barrier, keep=kept)))
        assert reply.status is self.model.collect_garbage(tablet, channel, *key, barrier=barrier, keep=kept), reply.reason
        self._do(self.group.settle())

    @rule(tablet=tablets, channel=channels, one=moments, other=moments, with_data=st.booleans())
    def range(self, tablet: int, channel: int, one: tuple[int, int], other: tuple[int, int], with_data: bool) -> None:
        first, last = BlobId(tablet, channel, *one, 0, 0), BlobId(tablet, channel, *other, 1, 5000)
        answer = self._do(self.group.do(self.group.proxy.range(first, last, with_data=with_data)))
        assert answer.status is Status.OK, answer.reason
        expected = [(blob_id, data if with_data else None) for blob_id, data in self.model.range(first, last)]
        assert [(blob_id, None if data is None else bytes(data)) for blob_id, data in answer.blobs] == expected

    @rule(tablet=tablets, min_generation=st.integers(0, GENERATIONS), limit=st.integers(1, 3))
    def discover(self, tablet: int, min_generation: int, limit: int) -> None:
        answer = self._do(self.group.do(self.group.proxy.discover(tablet, min_generation=min_generation, limit=limit)))
        found = [(blob_id, bytes(data or b"")) for blob_id, data in answer.blobs]
        assert (answer.status, answer.blocked_generation, found) == self.model.discover(tablet, min_generation, limit)

    @rule(crash=st.booleans())
    def restart(self, crash: bool) -> None:
        self._restart(crash=crash)
        self._do(self.group.settle())

    def _restart(self, *, crash: bool) -> None:
        self._do(self.group.restart(crash=crash))
        # Nothing here damages a disk, so none may say that it lost something.
        assert [loss for vdisk in self.group.life.vdisks.values() for loss in vdisk.recovered.losses] == []

    @rule(blob_id=blob_ids(), steps=st.integers(0, 120))
    def crash_during_put(self, blob_id: BlobId, steps: int) -> None:
        """The put may or may not have been done; what a range reports of it is then so for good."""
        blob_id = blob_id._replace(cookie=UNCERTAIN_COOKIE + self.uncertain)
        self.uncertain += 1
        data = payload(blob_id.size)
        self.group.process.crash_at_step(self.group.process.steps + steps)
        try:
            acknowledged = self._do(self.group.do(self.group.proxy.put(blob_id, data))).status is Status.OK
        except ProcessDiedError:
            acknowledged = False
        self._restart(crash=True)
        self._do(self.group.refill())
        answer = self._do(self.group.do(self.group.proxy.range(blob_id, blob_id)))
        assert answer.status is Status.OK, answer.reason
        assert answer.blobs or not acknowledged
        if answer.blobs:
            assert self.model.put(blob_id, data) is Status.OK
        self._do(self.group.settle())

    @rule()
    def tend(self) -> None:
        self._do(self.group.do(self.group.life.tend()))

    @precondition(lambda self: self.erasure is not Erasure.NONE)
    @rule(order=st.integers(0, 8))
    def take_out(self, order: int) -> None:
        order %= len(self.group.orders)
        out = sum(1 << each for each in self.group.absent | {order})
        if fits_fail_model(self.erasure, out):
            self._do(self.group.take_out(order))

    @precondition(lambda self: self.group.absent)
    @rule(wiped=st.sampled_from((False, False, True)), data=st.data())
    def put_in(self, wiped: bool, data: st.DataObject) -> None:
        order = data.draw(st.sampled_from(sorted(self.group.absent)), label="order")
        if wiped:
            self.group.platters[order].wipe()
        self._do(self.group.put_in(order))
        self._do(self.group.refill())


class NoneMachine(BlobMachine):
    """A single disk."""

    erasure = Erasure.NONE


class BlockMachine(BlobMachine):
    """Eight disks of which two may fail."""

    erasure = Erasure.BLOCK_4_2


class MirrorMachine(BlobMachine):
    """Nine disks in three realms, of which one may fail and a disk of another."""

    erasure = Erasure.MIRROR_3_DC


def _examples(machine: type[BlobMachine], count: int, soak: int) -> list[Any]:
    """So many in `make test`, and the others in `make soak`."""
    name = machine.erasure.value
    return [
        # A failing example is made small before it is shown, which may take longer than any test should.
        pytest.param(machine, count, marks=pytest.mark.timeout(600), id=name),
        pytest.param(machine, soak, marks=(pytest.mark.soak, pytest.mark.timeout(3600)), id=f"{name}-long"),
    ]


@pytest.mark.parametrize(
    ("machine", "count"),
    [*_examples(NoneMachine, 40, 400), *_examples(BlockMachine, 15, 120), *_examples(MirrorMachine, 12, 100)],
)
def test_a_group_answers_as_the_model_does(machine: type[BlobMachine], count: int) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=count, stateful_step_count=40, deadline=None, derandomize=True, report_multiple_bugs=False
        ),
    )
