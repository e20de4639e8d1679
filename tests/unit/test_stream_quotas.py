"""Stream clients under quotas: they wait for their share, or are told to come back, and nothing is half done."""

from __future__ import annotations

import asyncio

import pytest

from penstock.broker import FETCH_QUOTA, PRODUCE_QUOTA, QuotaEntity, QuotaExceededError
from penstock.gateway.stream.held_back import HeldBackStreams
from penstock.gateway.stream.probe import StreamProbe
from tests.sim_streams import SimStreams, in_parts, on_streams
from tests.sim_tablet import content

RATE = 1000.0  # bytes a second, and so much at once


async def limited(host: SimStreams, kind: str, user: str = "anna") -> HeldBackStreams:
    """The streams as a user has them; it is `anna` who has a quota."""
    await host.do(host.broker.quotas.change(QuotaEntity("anna"), {kind: RATE}))
    return HeldBackStreams(host.streams, host.broker.quotas, StreamProbe(), user, "stream")


def test_publishers_of_one_user_share_its_rate() -> None:
    async def scenario(host: SimStreams) -> None:
        streams = await limited(host, PRODUCE_QUOTA)
        began = host.node.clock.monotonic()
        published = [host.do(streams.publish("orders", b"x" * 500)) for _ in range(8)]
        sequences = [one.sequence for one in await asyncio.gather(*published)]
        took_s = host.node.clock.monotonic() - began
        assert sorted(sequences) == list(range(1, 9))
        # A second's worth at once and one message too much, the others as time goes by.
        assert 2.4 < took_s < 4.0
        assert streams._probe.throttled > 0

    on_streams(scenario)


def test_others_are_not_held_back() -> None:
    async def scenario(host: SimStreams) -> None:
        streams = await limited(host, PRODUCE_QUOTA, "boris")
        began = host.node.clock.monotonic()
        for _ in range(8):
            await host.do(streams.publish("orders", b"x" * 900))
        assert host.node.clock.monotonic() - began < 0.5

    on_streams(scenario)


def test_what_would_wait_for_long_is_refused_and_not_stored() -> None:
    async def scenario(host: SimStreams) -> None:
        streams = await limited(host, PRODUCE_QUOTA)
        await host.do(streams.publish("orders", content(9000)))  # what was too much is waited for by the next
        with pytest.raises(QuotaExceededError) as refused:
            await host.do(streams.publish("orders", b"x"))
        assert refused.value.retriable
        assert len(await host.read("orders")) == 1
        await asyncio.sleep(9)
        assert (await host.do(streams.publish("orders", b"x"))).sequence == 2

    on_streams(scenario)


def test_an_upload_goes_at_the_rate_it_may() -> None:
    async def scenario(host: SimStreams) -> None:
        streams = await limited(host, PRODUCE_QUOTA)
        began = host.node.clock.monotonic()
        published = await host.do(streams.publish_stream("files", in_parts(content(10_000), 500)))
        assert 8.0 < host.node.clock.monotonic() - began < 11.0
        assert await host.payload(published.sequence) == content(10_000)

    on_streams(scenario)


def test_a_download_counts_as_much_as_was_read() -> None:
    async def scenario(host: SimStreams) -> None:
        sequence = await host.publish("files", content(10_000))
        streams = await limited(host, FETCH_QUOTA)

        async def range_of(begin: int, end: int) -> bytes:
            message, _ = await streams.payload_of(sequence)
            return b"".join([bytes(part) async for part in streams.read_payload(message, begin, end)])

        assert await host.do(range_of(0, 500)) == content(10_000)[:500]
        assert await host.do(range_of(0, 10_000)) == content(10_000)
        with pytest.raises(QuotaExceededError):
            await host.do(range_of(0, 500))
        await asyncio.sleep(9)
        assert await host.do(range_of(500, 900)) == content(10_000)[500:900]

    on_streams(scenario)


def test_a_reader_gets_a_seconds_worth_at_a_time() -> None:
    async def scenario(host: SimStreams) -> None:
        streams = await limited(host, FETCH_QUOTA)
        for _ in range(12):
            await host.publish("orders", b"x" * 400)
        began = host.node.clock.monotonic()
        sequence, reads = 1, 0
        while (read := await host.do(streams.read("orders", sequence, 100))).messages:
            assert sum(len(message.data) for message in read.messages) <= RATE + 400
            sequence, reads = read.next_sequence, reads + 1
        assert (sequence, reads) == (13, 4)
        assert host.node.clock.monotonic() - began > 2.5

    on_streams(scenario)
