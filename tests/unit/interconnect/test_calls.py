"""Calls between nodes on a simulated network: how they end when all is well and when it is not, and what they may hold."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from penstock.interconnect import CallStatus, InterconnectOptions, Link, Reply, ServedCall
from penstock.testing.sim_loop import current_loop, run_simulation
from penstock.testing.sim_network import SimNetwork
from tests.interconnect_world import BUG, ECHO, FAIL, HANG, SimNode, new_network

Scenario = Callable[[SimNetwork], Coroutine[Any, Any, None]]


def simulated(scenario: Scenario) -> Callable[[], None]:
    """A test that runs in simulated time."""

    def test() -> None:
        async def main() -> None:
            await scenario(new_network())

        run_simulation(main(), seed=1)

    test.__name__ = scenario.__name__
    return test


async def pair(network: SimNetwork, options: InterconnectOptions | None = None) -> tuple[SimNode, SimNode, Link]:
    """Two nodes and the link from the first to the second."""
    first = await SimNode(network, 1, options=options).start()
    second = await SimNode(network, 2, options=options).start()
    return first, second, await first.link_to(second)


async def call(link: Link, method: int, body: bytes = b"", timeout_s: float = 5.0) -> Reply:
    return await link.call(method, 1, (body,), timeout_s=timeout_s, reply_bytes=len(body))


@simulated
async def test_a_call_is_answered_with_what_its_handler_returns(network: SimNetwork) -> None:
    _, _, link = await pair(network)
    for size in (0, 1, 4096, 65536, 65537, 3 << 20):
        body = current_loop().random.randbytes(size)
        reply = await call(link, ECHO, body)
        assert (reply.status, bytes(reply.body)) == (CallStatus.OK, body)


@simulated
async def test_errors_of_handlers_are_statuses_with_their_code(network: SimNetwork) -> None:
    _, second, link = await pair(network)
    assert await call(link, FAIL) == Reply(CallStatus.FAILED, b"", "the disk is full", "out_of_space")
    assert await call(link, BUG) == Reply(CallStatus.FAILED, b"", "KeyError: 'oops'", "internal")
    assert (await call(link, 99)).status is CallStatus.UNKNOWN_METHOD
    assert (await link.call(ECHO, 77, (), timeout_s=1)).status is CallStatus.UNKNOWN_DESTINATION
    assert (await link.call(ECHO, 1, (bytes(200_000),), timeout_s=1)).status is CallStatus.TOO_LARGE
    assert second.interconnect.service.probe.errors == {
        "FAILED": 2,
        "UNKNOWN_METHOD": 1,
        "UNKNOWN_DESTINATION": 1,
        "TOO_LARGE": 1,
    }
    assert second.interconnect.service.probe.bytes_held == 0


@simulated
async def test_a_call_that_hangs_stops_no_other_and_ends_at_its_deadline(network: SimNetwork) -> None:
    _, second, link = await pair(network)
    hanging = link.call(HANG, 1, (), timeout_s=2.0)
    began = current_loop().time()
    for _ in range(20):
        assert (await call(link, ECHO)).status is CallStatus.OK
    assert not hanging.done()
    assert (await hanging).status is CallStatus.EXPIRED
    assert current_loop().time() - began == pytest.approx(2.0, abs=0.02)
    await asyncio.sleep(0.01)
    assert second.cancelled == 1
    assert second.interconnect.service.probe.bytes_held == 0


@simulated
async def test_a_cancelled_call_cancels_its_handler(network: SimNetwork) -> None:
    _, second, link = await pair(network)
    task = asyncio.ensure_future(call(link, HANG))
    await asyncio.sleep(0.1)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    await asyncio.sleep(0.1)
    assert (second.cancelled, second.interconnect.service.probe.in_flight) == (1, 0)
    assert (await call(link, ECHO)).status is CallStatus.OK


@simulated
async def test_a_full_window_refuses_at_once_and_other_destinations_go_on(network: SimNetwork) -> None:
    first, second, link = await pair(network, InterconnectOptions(window_bytes=10_000))
    second.interconnect.service.register(2, {ECHO: second.echo})
    hanging = [link.call(HANG, 1, (bytes(4000),), timeout_s=3.0) for _ in range(2)]
    began = current_loop().time()
    refused = await call(link, ECHO, bytes(4000))
    assert refused.status is CallStatus.OVERLOADED
    assert "destination 1 of node 2" in refused.reason
    assert (await link.call(ECHO, 1, (), timeout_s=1, reply_bytes=5000)).status is CallStatus.OVERLOADED
    assert current_loop().time() == began
    assert (await link.call(ECHO, 2, (bytes(4000),), timeout_s=1)).status is CallStatus.OK
    assert {(await future).status for future in hanging} == {CallStatus.EXPIRED}
    assert (await call(link, ECHO, bytes(4000))).status is CallStatus.OK
    assert first.interconnect.links[2].probe.errors == {"OVERLOADED": 2, "EXPIRED": 2}


@simulated
async def test_a_link_holds_a_bounded_number_of_bytes_and_calls(network: SimNetwork) -> None:
    _, second, link = await pair(network, InterconnectOptions(link_bytes_max=20_000, calls_max=4))
    for destination in range(2, 6):
        second.interconnect.service.register(destination, {HANG: second.hang})
    futures = [link.call(HANG, destination, (bytes(8000),), timeout_s=1.0) for destination in range(2, 5)]
    assert [(await future).status for future in futures] == [CallStatus.EXPIRED, CallStatus.EXPIRED, CallStatus.OVERLOADED]
    futures = [link.call(HANG, 2, (), timeout_s=1.0) for _ in range(5)]
    assert (await futures[4]).status is CallStatus.OVERLOADED
    assert {(await future).status for future in futures[:4]} == {CallStatus.EXPIRED}
    assert (await call(link, ECHO, bytes(15_000))).status is CallStatus.OK


@simulated
async def test_a_node_refuses_more_than_it_can_hold_whatever_callers_think(network: SimNetwork) -> None:
    second = await SimNode(network, 2, options=InterconnectOptions(window_bytes=200_000)).start()
    first = await SimNode(network, 1).start()
    link = await first.link_to(second)
    futures = [link.call(HANG, 1, (bytes(150_000),), timeout_s=3.0) for _ in range(3)]
    replies = [await future for future in futures]
    assert [reply.status for reply in replies] == [CallStatus.EXPIRED, CallStatus.OVERLOADED, CallStatus.OVERLOADED]
    assert (await call(link, ECHO, bytes(150_000))).status is CallStatus.OK


@simulated
async def test_a_small_call_does_not_wait_behind_a_large_one(network: SimNetwork) -> None:
    order: list[int] = []
    _, _, link = await pair(network)
    network.delay("node-1", "node-2", 0.001, 0.001)

    async def note(size: int) -> None:
        assert (await call(link, ECHO, bytes(size))).status is CallStatus.OK
        order.append(size)

    large = asyncio.ensure_future(note(8 << 20))
    await asyncio.sleep(0.0005)
    await note(100)
    await large
    assert order == [100, 8 << 20]


@simulated
async def test_a_node_that_is_gone_breaks_calls_and_comes_back_by_itself(network: SimNetwork) -> None:
    _, second, link = await pair(network)
    changes: list[bool] = []
    link.watch(changes.append)
    in_flight = link.call(HANG, 1, (), timeout_s=100.0)
    await asyncio.sleep(0.1)
    second.process.crash()
    broken = await in_flight
    assert broken.status is CallStatus.BROKEN
    refused = await call(link, ECHO)
    assert refused.status is CallStatus.UNREACHABLE
    assert "node 2" in refused.reason
    await asyncio.sleep(10.0)
    assert "nothing listens" in link.why_down
    again = await SimNode(network, 2, incarnation=2).start()
    await asyncio.sleep(2.5)
    assert (await call(link, ECHO, b"x")).status is CallStatus.OK
    assert (again.served, changes, link.probe.connects) == ([b"x"], [False, True], 2)


@simulated
async def test_a_node_whose_process_has_ended_is_told_from_one_that_is_cut_off(network: SimNetwork) -> None:
    _, second, link = await pair(network)
    network.cut("node-1", "node-2")
    await asyncio.sleep(30.0)
    assert (link.is_connected, link.is_gone) == (False, False)
    network.restore("node-1", "node-2")
    await asyncio.sleep(10.0)
    assert (link.is_connected, link.is_gone) == (True, False)
    second.process.crash()
    await asyncio.sleep(0.5)
    assert (link.is_connected, link.is_gone) == (False, True)
    await SimNode(network, 2, incarnation=2).start()
    await asyncio.sleep(10.0)
    assert (link.is_connected, link.is_gone) == (True, False)


@simulated
async def test_a_link_does_not_wait_to_try_again_when_the_node_has_just_connected_to_this_one(network: SimNetwork) -> None:
    first, second, link = await pair(network)
    second.process.crash()
    await asyncio.sleep(60.0)  # by now the link waits for seconds between attempts
    second = await SimNode(network, 2, incarnation=2).start()
    began = current_loop().time()
    await second.link_to(first)
    while not link.is_connected:  # noqa: ASYNC110 - simulated time is free
        await asyncio.sleep(0.001)
    assert current_loop().time() - began < 0.05


@simulated
async def test_a_node_is_told_when_calls_from_another_can_no_longer_pass_and_when_they_can_again(network: SimNetwork) -> None:
    first, second, link = await pair(network)
    seen: list[tuple[int, bool]] = []
    second.interconnect.watch(lambda node_id, is_up: seen.append((node_id, is_up)))
    network.lose("node-1")
    await asyncio.sleep(2.5)
    assert (link.is_connected, seen) == (True, [(1, False), (1, True)])
    # The old connection ends after the new one was made: nothing is lost with it.
    network.lose("node-1", silently=True)
    await asyncio.sleep(30.0)
    assert (link.is_connected, seen[2:]) == (True, [(1, True)])
    first.process.crash()
    await asyncio.sleep(0.1)
    assert seen[3:] == [(1, False)]


@pytest.mark.parametrize("way", ["there", "back", "silent"])
def test_calls_fail_within_the_heartbeat_timeout_when_a_route_is_cut(way: str) -> None:
    async def main() -> None:
        network = new_network()
        _, second, link = await pair(network)
        in_flight = link.call(HANG, 1, (), timeout_s=100.0)
        await asyncio.sleep(0.1)
        began = current_loop().time()
        if way == "silent":
            network.lose("node-1", "node-2", silently=True)
        else:
            network.cut(*(("node-1", "node-2") if way == "there" else ("node-2", "node-1")))
        assert (await in_flight).status is CallStatus.BROKEN
        assert current_loop().time() - began < 1.6
        assert (await call(link, ECHO)).status in (CallStatus.UNREACHABLE, CallStatus.OK)
        await asyncio.sleep(20.0)
        # The other node gave the caller up, too, and what it ran for it.
        assert second.interconnect.service.probe.in_flight == 0
        network.restore("node-1", "node-2")
        network.restore("node-2", "node-1")
        await asyncio.sleep(5.0)
        assert (await call(link, ECHO)).status is CallStatus.OK
        assert second.interconnect.service.probe.peers == 2

    run_simulation(main(), seed=3)


@simulated
async def test_a_link_that_was_remade_at_once_has_one_heartbeat(network: SimNetwork) -> None:
    """Two of them would count each silence twice, and break the link after half of the time."""
    _, _, link = await pair(network)
    for _ in range(5):
        await asyncio.sleep(2.0)  # long enough for the next attempt to come at once
        network.lose("node-1")
        await asyncio.sleep(0.2)
        assert link.is_connected
    await asyncio.sleep(1.0)
    before = link.probe.round_trips.count
    await asyncio.sleep(10.0)
    assert link.probe.round_trips.count - before == pytest.approx(40, abs=1)


@simulated
async def test_calls_that_waited_in_a_stopped_node_beyond_their_deadline_are_not_run(network: SimNetwork) -> None:
    options = InterconnectOptions(heartbeat_timeout_s=60.0)
    _, second, link = await pair(network, options)
    assert (await call(link, ECHO, b"before")).status is CallStatus.OK
    network.freeze("node-2")
    assert (await call(link, ECHO, b"late", timeout_s=1.0)).status is CallStatus.EXPIRED
    waiting = link.call(ECHO, 1, (b"in time",), timeout_s=8.0)
    await asyncio.sleep(2.0)
    network.thaw("node-2")
    assert (await waiting).status is CallStatus.OK
    assert second.served == [b"before", b"in time"]


@simulated
async def test_a_node_of_the_same_id_that_started_earlier_is_refused(network: SimNetwork) -> None:
    logging.disable(logging.ERROR)
    target = await SimNode(network, 2).start()
    newer = await SimNode(network, 1, incarnation=5).start()
    await newer.link_to(target)
    older = SimNode(network, 1, incarnation=4)
    link = await older.link_to(target, waits=False)
    await asyncio.sleep(3.0)
    reply = await call(link, ECHO)
    assert reply.status is CallStatus.UNREACHABLE
    assert "another process with this node id is newer" in reply.reason
    assert target.interconnect.service.probe.refused["STALE_INCARNATION"] >= 1
    newest = await SimNode(network, 1, incarnation=6).link_to(target)
    assert (await call(newest, ECHO)).status is CallStatus.OK
    logging.disable(logging.NOTSET)


@simulated
async def test_a_peer_that_reads_no_replies_is_not_served_without_bound(network: SimNetwork) -> None:
    options = InterconnectOptions(
        unsent_bytes_max=1 << 20, window_bytes=1 << 30, heartbeat_timeout_s=600.0, caller_timeout_s=30.0
    )
    _, second, link = await pair(network, options)

    async def large(served: ServedCall) -> tuple[bytes]:
        second.served.append(b"")
        return (bytes(256 << 10),)

    second.interconnect.service.register(2, {ECHO: large})
    network.cut("node-2", "node-1")
    futures = [link.call(ECHO, 2, (bytes(50_000),), timeout_s=20.0, reply_bytes=256 << 10) for _ in range(400)]
    await asyncio.sleep(10.0)
    assert len(second.served) < 60
    network.restore("node-2", "node-1")
    assert {(await future).status for future in futures} == {CallStatus.OK}


@simulated
async def test_an_address_that_changes_is_followed(network: SimNetwork) -> None:
    first, second, link = await pair(network)
    other = "node-2:2"
    await second.process.call(second.interconnect.listen(other))

    async def move() -> None:
        assert first.interconnect.link(2, other) is link

    await first.process.call(move())
    await asyncio.sleep(1.0)
    assert (link.address, (await call(link, ECHO)).status) == (other, CallStatus.OK)


@simulated
async def test_a_closed_link_answers_that_it_is_closed(network: SimNetwork) -> None:
    first, _, link = await pair(network)
    hanging = link.call(HANG, 1, (), timeout_s=100.0)
    await first.process.call(first.interconnect.close())
    assert (await hanging).status is CallStatus.BROKEN
    reply = await call(link, ECHO)
    assert (reply.status, reply.reason) == (CallStatus.UNREACHABLE, "the link to node 2 is closed")


@simulated
async def test_a_handler_that_must_not_be_cancelled_runs_on_and_counts_until_it_ends(network: SimNetwork) -> None:
    _, second, link = await pair(network, InterconnectOptions(window_bytes=10_000))
    ended: list[bytes] = []

    async def write(served: ServedCall) -> tuple[bytes]:
        await asyncio.sleep(2.0)
        ended.append(bytes(served.body or b""))
        return (b"done",)

    service = second.interconnect.service
    service.register(2, {ECHO: write}, cancels=False)
    assert (await link.call(ECHO, 2, (bytes(8000),), timeout_s=0.5)).status is CallStatus.EXPIRED
    await asyncio.sleep(0.1)
    assert (service.probe.cancelled, service.probe.in_flight, ended) == (1, 1, [])
    # The caller has forgotten the call, the node has not.
    assert (await link.call(ECHO, 2, (bytes(8000),), timeout_s=0.5)).status is CallStatus.OVERLOADED
    await asyncio.sleep(2.0)
    assert (service.probe.in_flight, ended) == (0, [bytes(8000)])
    assert (await link.call(ECHO, 2, (bytes(8000),), timeout_s=5.0)).body == b"done"
