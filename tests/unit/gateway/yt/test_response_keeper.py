"""Remembered answers: found again after a restart, one at a time, for a while and up to a number."""

from __future__ import annotations

import asyncio

from penstock.broker.system_tablet import SystemTablet
from penstock.gateway.yt import response_keeper as keeper_module
from penstock.gateway.yt.response_keeper import KEPT_S, KeptResponse, ResponseKeeper
from penstock.testing.sim_loop import run_simulation
from tests.sim_broker import SimBroker

TABLET = 77


async def tablet_of(host: SimBroker) -> SystemTablet:
    return await host.do(host.broker.system_tablet(TABLET))


async def remember(answers: ResponseKeeper, name: str, body: bytes) -> None:
    assert await answers.begin(name) is None
    answers.end(name, KeptResponse(body, {"Content-Type": "text/plain"}))


def test_answers_are_known_again_after_a_restart_until_their_time_is_over() -> None:
    async def scenario() -> None:
        host = await SimBroker().start()
        answers = ResponseKeeper(await tablet_of(host), host.node.clock)
        await host.do(remember(answers, "a", b"one"))
        await host.do(answers.stop())
        await host.restart()
        tablet = await tablet_of(host)
        answers = ResponseKeeper(tablet, host.node.clock)
        assert await host.do(answers.begin("a")) == KeptResponse(b"one", {"Content-Type": "text/plain"})
        await asyncio.sleep(KEPT_S + 1)
        assert await host.do(answers.begin("a")) is None
        answers.end("a", None)
        await host.do(remember(answers, "b", b"two"))
        await host.do(answers.stop())
        assert len(list(tablet.keys(b"m", b"n"))) == 1  # the evicted response is not stored either
        await host.stop()

    run_simulation(scenario(), seed=1)


def test_who_asks_meanwhile_gets_the_same_answer() -> None:
    async def scenario() -> None:
        host = await SimBroker().start()
        answers = ResponseKeeper(await tablet_of(host), host.node.clock)
        assert await host.do(answers.begin("a")) is None
        second = asyncio.ensure_future(host.do(answers.begin("a")))
        await asyncio.sleep(1)
        assert not second.done()
        await host.do(_ended(answers, KeptResponse(b"one", {})))
        found = await second
        assert found is not None
        assert found.body == b"one"
        # After a failure the waiters retry by themselves.
        assert await host.do(answers.begin("b")) is None
        second = asyncio.ensure_future(host.do(answers.begin("b")))
        await asyncio.sleep(1)
        answers.end("b", None)
        assert await second is None
        answers.end("b", None)
        await host.do(answers.stop())
        await host.stop()

    run_simulation(scenario(), seed=1)


async def _ended(answers: ResponseKeeper, answer: KeptResponse) -> None:
    answers.end("a", answer)


def test_the_oldest_go_when_there_are_too_many() -> None:
    async def scenario() -> None:
        host = await SimBroker().start()
        answers = ResponseKeeper(await tablet_of(host), host.node.clock)
        large = bytes(keeper_module.KEPT_BYTES_MAX // 3)
        for name in "abcd":
            await host.do(remember(answers, name, large))
        assert await host.do(answers.begin("a")) is None
        assert await host.do(answers.begin("d")) is not None
        await host.do(answers.stop())
        await host.stop()

    run_simulation(scenario(), seed=1)
