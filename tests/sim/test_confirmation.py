"""Answers from memory are given only while a quorum of disks has confirmed, a moment ago, that no other node has taken over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from penstock.blob import Confirmations, Erasure, GroupProxy
from penstock.blob.confirmation import PATIENCE_S, VALID_S
from penstock.core.errors import FencedError, UnavailableError
from penstock.testing.sim_loop import SimulationError, current_loop, run_simulation
from tests.sim_group import SimGroup, run_group
from tests.sim_tablet import TABLET, SimNode


class Tablet:
    """A tablet that runs, as far as confirmations know."""

    def __init__(self, number: int, generation: int) -> None:
        self.id = number
        self.generation = generation
        self.is_superseded = False

    def supersede(self) -> None:
        self.is_superseded = True


async def confirmed(group: SimGroup, tablet: Tablet, test: Callable[[Confirmations], Coroutine[Any, Any, None]]) -> None:
    """Run a test while a tablet of the group is confirmed."""

    async def proxy_of(_: int) -> GroupProxy:
        return group.proxy

    confirmations = Confirmations(proxy_of, current_loop().time)
    confirmations.add(0, tablet, confirmations.now())
    running = asyncio.create_task(confirmations.run())
    try:
        await test(confirmations)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def test_a_confirmation_holds_for_a_while_from_when_it_was_sent_and_needs_a_quorum() -> None:
    async def scenario(group: SimGroup) -> None:
        async def test(confirmations: Confirmations) -> None:
            await asyncio.sleep(10.0)
            assert confirmations.now() < confirmations.until <= confirmations.now() + VALID_S
            await group.take_out(0)
            await asyncio.sleep(10.0)
            assert confirmations.now() < confirmations.until
            await group.take_out(1)
            await asyncio.sleep(VALID_S)
            assert confirmations.now() >= confirmations.until
            began = confirmations.now()
            with pytest.raises(UnavailableError, match="does not confirm"):
                await confirmations.check()
            assert confirmations.now() - began <= PATIENCE_S + 1.0
            waiting = asyncio.create_task(confirmations.check())
            await asyncio.sleep(1.0)
            await group.put_in(1)
            await waiting

        await confirmed(group, Tablet(1, 1), test)

    run_group(Erasure.MIRROR_3, scenario)


def test_an_unexpected_error_is_reported_and_tablets_are_confirmed_again_after_it() -> None:
    asked: list[float] = []

    async def scenario(group: SimGroup) -> None:
        async def proxy_of(_: int) -> GroupProxy:
            asked.append(current_loop().time())
            if len(asked) == 3:
                raise ZeroDivisionError("unexpected")
            return group.proxy

        confirmations = Confirmations(proxy_of, current_loop().time)
        confirmations.add(0, Tablet(1, 1), confirmations.now())
        running = asyncio.create_task(confirmations.run())
        await asyncio.sleep(10.0)
        assert confirmations.now() < confirmations.until
        assert len(asked) > 5
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    with pytest.raises(SimulationError, match="confirms no tablet, and is asked again"):
        run_group(Erasure.MIRROR_3, scenario)
    assert len(asked) > 5, "it fails because of the report alone"


def test_a_tablet_that_was_started_elsewhere_is_superseded_before_anything_is_confirmed() -> None:
    async def scenario(group: SimGroup) -> None:
        tablet = Tablet(1, 4)

        async def test(confirmations: Confirmations) -> None:
            await group.do(group.proxy.block(1, 4, 7))
            await confirmations.confirm()
            assert not tablet.is_superseded
            await group.do(group.proxy.block(1, 5, 8))
            await confirmations.confirm()
            assert tablet.is_superseded

        await confirmed(group, tablet, test)

    run_group(Erasure.MIRROR_3, scenario)


def test_what_decides_waits_for_a_confirmation_that_began_after_it_was_asked_for() -> None:
    async def test() -> None:
        rounds: list[asyncio.Future[list[int]]] = []

        class Proxy:
            async def blocked_generations(self, tablets: list[int]) -> list[int] | None:
                rounds.append(asyncio.get_running_loop().create_future())
                return await rounds[-1]

        async def proxy_of(_: int) -> Any:
            return Proxy()

        confirmations = Confirmations(proxy_of, current_loop().time)
        confirmations.add(0, Tablet(1, 1), confirmations.now())
        running = asyncio.create_task(confirmations.run())
        await asyncio.sleep(0.7)
        assert len(rounds) == 1
        asked = asyncio.create_task(confirmations.confirm())
        await asyncio.sleep(0.1)
        rounds[0].set_result([0])
        await asyncio.sleep(0.1)
        assert (len(rounds), asked.done()) == (2, False), "the round in flight was sent before it was asked for"
        rounds[1].set_result([0])
        await asked
        # A tablet whose start began before the last round, and ended after it, is confirmed by its start alone.
        now = confirmations.now()
        confirmations.add(0, Tablet(2, 1), now - 1.0)
        assert confirmations.until == now - 1.0 + VALID_S
        running.cancel()

    run_simulation(test())


def test_a_group_that_does_not_answer_delays_only_what_is_told_of_its_own_tablets() -> None:
    async def test() -> None:
        class Proxy:
            def __init__(self, group: int) -> None:
                self.group = group

            async def blocked_generations(self, tablets: list[int]) -> list[int] | None:
                if self.group:
                    await asyncio.Event().wait()
                return [0] * len(tablets)

        async def proxy_of(group: int) -> Any:
            return Proxy(group)

        confirmations = Confirmations(proxy_of, current_loop().time)
        lone = Tablet(2, 1)
        confirmations.add(0, Tablet(1, 1), confirmations.now())
        confirmations.add(1, lone, confirmations.now())
        running = asyncio.create_task(confirmations.run())
        for _ in range(20):
            await asyncio.sleep(0.3)
            began = confirmations.now()
            await confirmations.check((0,))
            assert confirmations.now() == began
        assert confirmations.unconfirmed_s(0) < VALID_S < 5.9 < confirmations.unconfirmed_s(1)
        waiting = asyncio.create_task(confirmations.check((1,)))
        with pytest.raises(UnavailableError, match="does not confirm"):
            await confirmations.check()
        with pytest.raises(UnavailableError, match="does not confirm"):
            await waiting
        # Of a tablet that has stopped nothing is told any more, and who waits for it need not wait on.
        began = confirmations.now()
        waiting = asyncio.create_task(confirmations.check((0, 1)))
        await asyncio.sleep(0.7)
        confirmations.remove(1, lone)
        await waiting
        assert confirmations.now() - began < 1.0
        running.cancel()

    run_simulation(test())


def test_a_tablet_stops_as_fenced_though_it_writes_nothing() -> None:
    async def test() -> None:
        node = SimNode()
        node.start()
        storage = node.storage
        confirmations = storage.confirmations = Confirmations(storage.proxy, current_loop().time)
        running = asyncio.create_task(confirmations.run())
        old = await node.kv(1)
        await confirmations.confirm()
        assert not old.stopped.is_set()
        # Started without the knowledge of these confirmations, as on another node.
        storage.confirmations = None
        new = await node.kv(2)
        storage.confirmations = confirmations
        await confirmations.confirm()
        assert isinstance(old.stop_cause, FencedError)
        assert (old.id, confirmations.until) == (TABLET, float("inf")), "it is not asked for again"
        await old.stop()
        await new.stop()
        running.cancel()

    run_simulation(test())
