"""Quotas of stream clients: a client over its quota waits or is refused, and nothing is half done."""

from __future__ import annotations

import asyncio

import pytest

from penstock.broker.quotas import FETCH_QUOTA, PRODUCE_QUOTA, QuotaEntity, QuotaExceededError
from penstock.broker.streams import Content, PublishResult, ReadMessages
from penstock.gateway.stream.caller import StreamCaller
from penstock.gateway.stream.probe import StreamProbe
from tests.sim_streams import SimStreams, in_parts, on_streams
from tests.sim_tablet import content

RATE = 1000.0  # bytes a second, and so much at once


async def limited(host: SimStreams, kind: str, user: str = "anna") -> StreamCaller:
    """A caller; the user `anna` has a quota."""
    await host.do(host.broker.quotas.change(QuotaEntity("anna"), {kind: RATE}))
    return StreamCaller(host.streams, host.broker, StreamProbe(), principal=f"User:{user}", host="", client="stream")


async def publish(caller: StreamCaller, data: bytes) -> PublishResult:
    """Publish a message as the gateway does."""
    await caller.admit_publish("orders", [Content(data, {})])
    return await caller.streams.publish("orders", data)


def test_publishers_of_one_user_share_its_rate() -> None:
    async def scenario(host: SimStreams) -> None:
        caller = await limited(host, PRODUCE_QUOTA)
        began = host.node.clock.monotonic()
        published = [host.do(publish(caller, b"x" * 500)) for _ in range(8)]
        sequences = [message.sequence for message in await asyncio.gather(*published)]
        took_s = host.node.clock.monotonic() - began
        assert sorted(sequences) == list(range(1, 9))
        # A second's worth at once and one message too much, the others as time goes by.
        assert 2.4 < took_s < 4.0
        assert caller._probe.throttled > 0

    on_streams(scenario)


def test_a_user_without_a_quota_is_not_throttled() -> None:
    async def scenario(host: SimStreams) -> None:
        caller = await limited(host, PRODUCE_QUOTA, "boris")
        began = host.node.clock.monotonic()
        for _ in range(8):
            await host.do(publish(caller, b"x" * 900))
        assert host.node.clock.monotonic() - began < 0.5

    on_streams(scenario)


def test_a_message_that_would_wait_for_long_is_refused_and_not_stored() -> None:
    async def scenario(host: SimStreams) -> None:
        caller = await limited(host, PRODUCE_QUOTA)
        await host.do(publish(caller, content(9000)))  # overdraws the quota, so the next one waits
        with pytest.raises(QuotaExceededError) as refused:
            await host.do(publish(caller, b"x"))
        assert refused.value.retriable
        assert len(await host.read("orders")) == 1
        await asyncio.sleep(9)
        assert (await host.do(publish(caller, b"x"))).sequence == 2

    on_streams(scenario)


def test_an_upload_is_throttled_to_the_quota() -> None:
    async def scenario(host: SimStreams) -> None:
        caller = await limited(host, PRODUCE_QUOTA)
        began = host.node.clock.monotonic()
        published = await host.do(caller.streams.publish_stream("files", caller.throttle_upload(in_parts(content(10_000), 500))))
        assert 8.0 < host.node.clock.monotonic() - began < 11.0
        assert await host.payload(published.sequence) == content(10_000)

    on_streams(scenario)


def test_a_download_is_charged_by_the_bytes_it_read() -> None:
    async def scenario(host: SimStreams) -> None:
        sequence = await host.publish("files", content(10_000))
        caller = await limited(host, FETCH_QUOTA)

        async def range_of(begin: int, end: int) -> bytes:
            message, _ = await caller.open_payload(sequence)
            parts = caller.throttle_download(caller.streams.read_payload(message, begin, end))
            return b"".join([bytes(part) async for part in parts])

        assert await host.do(range_of(0, 500)) == content(10_000)[:500]
        assert await host.do(range_of(0, 10_000)) == content(10_000)
        with pytest.raises(QuotaExceededError):
            await host.do(range_of(0, 500))
        await asyncio.sleep(9)
        assert await host.do(range_of(500, 900)) == content(10_000)[500:900]

    on_streams(scenario)


def test_a_reader_gets_a_seconds_worth_at_a_time() -> None:
    async def scenario(host: SimStreams) -> None:
        caller = await limited(host, FETCH_QUOTA)
        for _ in range(12):
            await host.publish("orders", b"x" * 400)
        began = host.node.clock.monotonic()
        sequence, reads = 1, 0

        async def read_next() -> ReadMessages:
            batch = await caller.streams.read("orders", sequence, 100, await caller.admit_read("orders"))
            caller.charge_read(batch.messages)
            return batch

        while (read := await host.do(read_next())).messages:
            assert sum(len(message.data) for message in read.messages) <= RATE + 400
            sequence, reads = read.next_sequence, reads + 1
        assert (sequence, reads) == (13, 4)
        assert host.node.clock.monotonic() - began > 2.5

    on_streams(scenario)
