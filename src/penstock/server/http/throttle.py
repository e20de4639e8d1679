"""Quotas of callers who produce and consume over HTTP: the same as those of Kafka clients, by user."""

from __future__ import annotations

import asyncio
from typing import Final

from penstock.broker import Broker
from penstock.broker.quotas import FETCH_QUOTA, PRODUCE_QUOTA
from penstock.gateway.measured_request import note_waited
from penstock.server.http.caller import Caller

CLIENT_ID: Final = "http"
HELD_S_MAX: Final = 5.0


async def throttle_writer(broker: Broker, caller: Caller, size: int) -> None:
    """Counts `size` produced bytes; delays the response if the caller exceeds its quota."""
    if broker.quotas.limits_produce:
        await _hold(broker.quotas.draw(PRODUCE_QUOTA, _user(caller), CLIENT_ID, size))


async def throttle_reader(broker: Broker, caller: Caller, size: int) -> None:
    """Counts `size` fetched bytes; delays the response if the caller exceeds its quota."""
    if broker.quotas.limits_fetch:
        await _hold(broker.quotas.draw(FETCH_QUOTA, _user(caller), CLIENT_ID, size))


def _user(caller: Caller) -> str:
    return caller.principal.removeprefix("User:")


async def _hold(wait_ms: int) -> None:
    if wait_ms:
        wait_s = min(wait_ms / 1000, HELD_S_MAX)
        note_waited(wait_s)
        await asyncio.sleep(wait_s)
