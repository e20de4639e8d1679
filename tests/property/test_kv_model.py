"""Random requests, snapshots, collections, restarts and crashes of a KV tablet, each answer compared with that of a dict."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from penstock.core.errors import FencedError, InvalidRequestError
from penstock.tablet import (
    Command,
    Concat,
    DeleteRange,
    KvTablet,
    RangeResult,
    Read,
    ReadRange,
    ReadResult,
    Request,
    Result,
    Write,
)
from penstock.testing.sim_loop import ProcessDiedError, SimLoop, SimProcess
from tests.sim_tablet import DATA, LOG, SimNode, content

T = TypeVar("T")
State = dict[bytes, bytes]

keys = st.sampled_from([b"a", b"ab", b"b", b"ba", b"c"])
ends = st.sampled_from([b"a", b"b", b"c", b"d"])
values = st.builds(content, st.sampled_from([0, 7, 1000, 1001, 3000]), st.integers(0, 3))
commands: st.SearchStrategy[Command] = st.one_of(
    st.builds(Write, keys, values, st.sampled_from([b"", b"head"])),
    st.builds(Write, keys, values),
    st.builds(Read, keys),
    st.builds(ReadRange, keys, st.one_of(st.none(), ends), st.booleans()),
    st.builds(DeleteRange, keys, ends),
    st.builds(Concat, st.lists(keys, min_size=1, max_size=3).map(tuple), keys, st.just(b""), st.booleans()),
)
requests = st.lists(commands, min_size=1, max_size=4).map(tuple)


class RefusedError(Exception):
    """The model refuses a request."""


def apply(before: State, asked: tuple[Command, ...]) -> tuple[State, list[Result]]:
    """The state after a request, and its results."""
    state = dict(before)
    results: list[Result] = []
    for command in asked:
        results.append(answer(before, command))
        change(state, command)
    return state, results


def answer(state: State, command: Command) -> Result:
    """What a read is answered."""
    if isinstance(command, Read):
        return ReadResult(state.get(command.key))
    if isinstance(command, ReadRange):
        chosen = sorted(key for key in state if command.begin <= key and (command.end is None or key < command.end))
        return RangeResult(tuple((key, len(state[key]), state[key] if command.with_values else None) for key in chosen))  # type: ignore[misc]
    return None


def change(state: State, command: Command) -> None:
    """What a command does to the state. RefusedError if it cannot."""
    match command:
        case Write(key, value):
            state[key] = b"".join(value) if isinstance(value, tuple) else bytes(value)
        case DeleteRange(begin, end):
            for key in [key for key in state if begin <= key < end]:
                del state[key]
        case Concat(sources, target, _, keep):
            if not all(key in state for key in sources):
                raise RefusedError
            joined = b"".join(state[key] for key in sources)
            for key in () if keep else set(sources):
                del state[key]
            state[target] = joined


class KvMachine(RuleBasedStateMachine):
    """One tablet in a process that can be killed, and the dict that it should be."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = SimLoop(shuffle_ties=True)
        self.node = SimNode(loop=self.loop)
        self.state: State = {}
        self.generation = 0
        self.zombies: list[KvTablet] = []
        self._start_process()
        self._boot()

    def teardown(self) -> None:
        try:
            self._compare()
            self._do(self.node.close())
            self.loop.cancel_leftovers()
        finally:
            self.loop.close()
        assert self.loop.unhandled == []

    def _start_process(self) -> None:
        self.process = SimProcess(self.loop, f"node-{self.generation}")
        self.zombies.clear()

    def _boot(self) -> None:
        self.generation += 1
        self.tablet = self._do(self.node.kv(self.generation))

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(self.process.call(work))

    def _read_all(self) -> State:
        (listed,) = self._do(self.tablet.execute(Request((ReadRange(with_values=True),))))
        assert isinstance(listed, RangeResult)
        return {info.key: bytes(info.value or b"") for info in listed.keys}

    def _compare(self) -> None:
        assert self._read_all() == self.state

    @rule(asked=st.lists(requests, min_size=1, max_size=4))
    def request(self, asked: list[tuple[Command, ...]]) -> None:
        """Requests that are sent at once are carried out in their order."""

        async def send() -> list[list[Result] | BaseException]:
            works = (self.tablet.execute(Request(one)) for one in asked if any(not _reads(each) for each in one))
            return await asyncio.gather(*works, return_exceptions=True)

        answers = iter(self._do(send()))
        for one in asked:
            if all(map(_reads, one)):
                continue
            given = next(answers)
            try:
                self.state, expected = apply(self.state, one)
            except RefusedError:
                assert isinstance(given, InvalidRequestError), given
            else:
                assert given == expected

    @rule(one=requests)
    def read(self, one: tuple[Command, ...]) -> None:
        questions = tuple(command for command in one if _reads(command))
        assert self._do(self.tablet.execute(Request(questions))) == [answer(self.state, command) for command in questions]

    @rule()
    def snapshot(self) -> None:
        self._do(self.tablet.take_snapshot())
        assert len(self._do(self.node.blobs(LOG))) == 1

    @rule(one=requests)
    def snapshot_during_a_request(self, one: tuple[Command, ...]) -> None:
        async def both() -> list[object]:
            works = (self.tablet.take_snapshot(), self.tablet.execute(Request((Write(b"z", b""), *one))))
            return list(await asyncio.gather(*works, return_exceptions=True))

        done = self._do(both())
        assert done[0] is None
        if not isinstance(done[1], InvalidRequestError):
            assert not isinstance(done[1], BaseException), done[1]
            self.state, _ = apply(self.state, (Write(b"z", b""), *one))

    @rule()
    def collect(self) -> None:
        self._do(self.tablet.collect_garbage())
        old = [blob for blob in self._do(self.node.blobs(DATA)) if blob.generation == self.generation]
        assert set(old) <= set(self.tablet.index.references)

    @rule()
    def restart(self) -> None:
        self._do(self.tablet.stop())
        self._boot()
        self._compare()

    @rule()
    def start_a_rival(self) -> None:
        """The older one does not know yet; whatever it tries, it is told."""
        self.zombies.append(self.tablet)
        self._boot()
        self._compare()
        for zombie in self.zombies:
            outcome = self._do(_caught(partial(zombie.execute, Request((Write(b"a", content(2000, 9)),)))))
            assert isinstance(outcome, FencedError)
        self._compare()

    @rule(one=requests, steps=st.integers(0, 25))
    def crash_during_a_request(self, one: tuple[Command, ...], steps: int) -> None:
        asked = (Write(b"z", content(1500)), *one)
        before = self.state
        try:
            after, _ = apply(before, asked)
        except RefusedError:
            after = before
        self.process.crash_at_step(self.process.steps + steps)
        try:
            outcome = self._do(_caught(partial(self.tablet.execute, Request(asked))))
            acknowledged = outcome is None
        except ProcessDiedError:
            acknowledged = False
        self.process.crash()
        self.node.start()
        self._start_process()
        self._boot()
        self.state = self._read_all()
        assert self.state in ([after] if acknowledged else [before, after])


def _reads(command: Command) -> bool:
    return isinstance(command, Read | ReadRange)


async def _caught(start: Callable[[], Coroutine[Any, Any, object]]) -> BaseException | None:
    try:
        await start()
    except (InvalidRequestError, FencedError) as error:
        return error
    return None


def test_the_tablet_answers_as_the_model_does() -> None:
    run_state_machine_as_test(
        KvMachine,
        settings=settings(max_examples=40, stateful_step_count=30, deadline=None, derandomize=True, report_multiple_bugs=False),
    )
