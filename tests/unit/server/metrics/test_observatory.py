"""The observatory of a node: phases, readiness and what is still answered when there is nothing to watch."""

from __future__ import annotations

import asyncio
import logging

import pytest

from penstock.core.clock import SystemClock
from penstock.core.errors import InvalidRequestError
from penstock.core.probe import RequestProbe
from penstock.server.metrics import Observatory
from penstock.server.metrics.metric import Tier
from penstock.server.metrics.observatory import DRAINING, STARTING, STUCK_S


class Gateway:
    """A listener that counts."""

    def __init__(self) -> None:
        self.probe = RequestProbe()


class LateClock(SystemClock):
    """A clock that can be put forward."""

    late_s = 0.0

    def monotonic(self) -> float:
        return SystemClock.monotonic() + self.late_s


def test_a_node_is_not_ready_before_it_serves_nor_while_it_drains() -> None:
    observatory = Observatory(clock=SystemClock())
    assert observatory.phase == STARTING
    assert observatory.trouble() == ["the node is starting"]
    observatory.drain()
    assert observatory.phase == DRAINING
    assert observatory.trouble() == ["the node is stopping"]
    assert observatory.illness() is None


def test_without_a_broker_only_the_process_is_told_of() -> None:
    observatory = Observatory(clock=SystemClock())
    samples = asyncio.run(observatory.scrape(Tier.INTERNAL))
    names = {metric.name for metric in samples.by_metric}
    assert {"penstock_build_info", "penstock_ready", "penstock_process_resident_memory_bytes"} <= names
    assert not any(name.startswith("penstock_produce") for name in names)
    assert observatory.topic_rates("any").produce_bytes_per_s == 0
    with pytest.raises(InvalidRequestError):
        observatory.history("speed")


def test_a_loop_that_does_not_turn_is_an_illness() -> None:
    clock = LateClock()
    observatory = Observatory(clock=clock)
    observatory.phase = "serving"
    assert observatory.illness() is None
    clock.late_s = STUCK_S + 1
    assert "has not turned" in (observatory.illness() or "")


def test_gateways_are_traced_once_tracing_is_on() -> None:
    class Tracing:
        def begin(self, name: str, traceparent: str | None = None, attributes: object = None) -> object:
            raise AssertionError(name)

    observatory = Observatory(clock=SystemClock())
    before, after = Gateway(), Gateway()
    observatory.watch("kafka", before)
    observatory.trace(Tracing())  # type: ignore[arg-type] # nothing is ever begun
    observatory.watch("kafka", after)
    assert before.probe.tracing is None
    assert after.probe.tracing is observatory.probe.tracing is not None


def test_a_fault_in_the_watching_does_not_end_it(caplog: pytest.LogCaptureFixture) -> None:
    """Without anything to watch a tick fails; it is logged, and tried again a second later."""

    async def main() -> None:
        task = asyncio.create_task(Observatory(clock=SystemClock())._tick_for_ever())
        await asyncio.sleep(1.3)
        assert not task.done()
        task.cancel()

    with caplog.at_level(logging.ERROR):
        asyncio.run(main())
    assert "could not watch itself" in caplog.text
