"""Streams under crashes: wherever the node dies between log, sequence, upload and insert, nothing acknowledged is lost or moved,
no number is given twice, a follower misses nothing, and no payload is left without its message."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from random import Random

import pytest

from penstock.core.errors import PenstockError
from penstock.testing.sim_loop import ProcessDiedError, run_simulation
from tests.sim_streams import SimStreams, in_parts
from tests.sim_tablet import content

SUBJECTS = ("a", "b", "c")
LARGE = 3000


@dataclass(slots=True)
class Told:
    """What publishers were told, and what a follower has seen."""

    sequences: dict[int, tuple[str, bytes]] = field(default_factory=dict)
    seen: dict[int, bytes] = field(default_factory=dict)
    order: list[int] = field(default_factory=list)


async def _publish(host: SimStreams, told: Told, rng: Random, number: int) -> None:
    subject = rng.choice(SUBJECTS)
    is_large = rng.random() < 0.3
    data = content(LARGE, number) if is_large else b"%d" % number
    if is_large and rng.random() < 0.5:
        sequence = (await host.do(host.streams.publish_parts(subject, in_parts(data, 1000)))).sequence
    else:
        sequence = await host.publish(subject, data)
    assert sequence not in told.sequences, f"sequence {sequence} was given twice"
    told.sequences[sequence] = (subject, data)


async def _publisher(host: SimStreams, told: Told, rng: Random, numbers: range) -> None:
    for number in numbers:
        try:
            await host.until_ready()
            await _publish(host, told, rng, number)
        except (PenstockError, ProcessDiedError):
            await asyncio.sleep(0.05)


async def _follower(host: SimStreams, told: Told, stop: asyncio.Event) -> None:
    """Follows all subjects by sequence, as a client does: never looks back."""
    at = 1
    while True:
        last_time = stop.is_set()
        try:
            await host.until_ready()
            read = await host.do(host.streams.read(">", at, 7))
        except (PenstockError, ProcessDiedError):
            await asyncio.sleep(0.05)
            continue
        for message in read.messages:
            told.order.append(message.sequence)
            told.seen[message.sequence] = message.data
        if last_time and read.next_sequence == at:
            return
        at = read.next_sequence
        await asyncio.sleep(0.01)


async def _check(host: SimStreams, told: Told) -> None:
    """Everything is as it was told."""
    assert told.order == sorted(set(told.order)), "a follower saw a sequence twice or out of order"
    messages = await host.read(">")
    assert [message.sequence for message in messages] == told.order, "a follower missed a message"
    by_sequence = {message.sequence: message for message in messages}
    for sequence, (subject, data) in told.sequences.items():
        message = by_sequence[sequence]
        assert message.subject == subject
        assert await host.payload(sequence) == data
    payloads = sum(1 for message in messages if message.payload is not None)
    await host.do(host.streams.sweep())
    assert host.streams.payloads.sizes() == (payloads, 0), "a payload has no message, or a message no payload"
    for message in messages:
        assert len(await host.payload(message.sequence)) > 0


@pytest.mark.parametrize("seed", range(6))
def test_a_node_that_is_killed_again_and_again(seed: int) -> None:
    async def run() -> None:
        rng = Random(seed)
        host, told, stop = SimStreams(), Told(), asyncio.Event()
        await host.start()
        following = asyncio.create_task(_follower(host, told, stop))
        publishers = [
            asyncio.create_task(_publisher(host, told, Random(f"{seed}/{at}"), range(at * 100, at * 100 + 25))) for at in range(5)
        ]
        for _ in range(5):
            await asyncio.sleep(rng.random() * 0.4)
            host.process.crash()
            while True:
                try:
                    await host.start(crash_at=rng.randrange(2000) if rng.random() < 0.3 else None)
                    break
                except ProcessDiedError:
                    continue
        host.process.crash()  # it may have been told to die later on; the last one lives
        await host.start()
        await asyncio.gather(*publishers)
        stop.set()
        await following
        await _check(host, told)
        await host.stop()

    run_simulation(run(), seed=seed)


@pytest.mark.parametrize("part", range(4))
def test_a_crash_at_every_step_of_a_large_publish(part: int) -> None:
    """Between upload, message, sequence and claim: step after step."""

    async def run() -> None:
        host = await SimStreams().start()
        await host.publish("a", b"first")
        highest, step = 1, part
        while True:
            began = host.process.steps
            host.process.crash_at_step(began + step)
            try:
                sequence = (await host.do(host.streams.publish_parts("a", in_parts(content(LARGE), 1000)))).sequence
            except ProcessDiedError:
                sequence = None
            if not host.process.crashed:
                host.process.crash()
            await host.start()
            if sequence is not None:
                assert sequence > highest
                assert await host.payload(sequence) == content(LARGE)
            await host.do(host.streams.sweep())
            messages = await host.read("a")
            sequences = [message.sequence for message in messages]
            assert sequences == sorted(set(sequences))
            assert host.streams.payloads.sizes() == (len(messages) - 1, 0)
            for message in messages[1:][-2:]:
                assert await host.payload(message.sequence) == content(LARGE)
            highest = sequences[-1]
            if sequence is not None:
                break
            step += 4
        assert step > 20
        await host.stop()

    run_simulation(run())


@pytest.mark.parametrize("seed", [0, 1, 2, 3, 4, 123])
def test_tablets_that_stop_and_start_again_under_load(seed: int) -> None:
    """The node lives, but its tablets do not: of the streams, of the payloads, of the topics; the disk fails now and then."""

    async def run() -> None:
        rng = Random(f"tablets/{seed}")
        host, told, stop = SimStreams(), Told(), asyncio.Event()
        await host.start()
        following = asyncio.create_task(_follower(host, told, stop))
        publishers = [
            asyncio.create_task(_publisher(host, told, Random(f"{seed}/{at}"), range(at * 100, at * 100 + 40))) for at in range(5)
        ]
        streams_tablet, payloads_tablet = 4, 5
        for _ in range(12):
            await asyncio.sleep(rng.random() * 0.3)
            what = rng.randrange(3)
            if what == 0:
                await host.break_system_tablet(rng.choice((streams_tablet, payloads_tablet)))
            elif what == 1 and host.streams.subjects():
                await host.break_tablet(rng.choice(host.streams.subjects()))
            else:
                host.node.faults.error_rate = {"flush": 0.3}
                await asyncio.sleep(0.05)
                host.node.faults.error_rate = {}
        await asyncio.gather(*publishers)
        await asyncio.sleep(30)
        stop.set()
        await following
        assert len(told.sequences) > 20
        await _check(host, told)
        await host.restart()
        await _check(host, told)
        await host.stop()

    run_simulation(run(), seed=seed)
