"""Streams: the seed's functions with their meaning, and the faults of the original that ours must not have."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from penstock.broker import OFFSETS_TOPIC, TopicConfig, UnknownTopicError
from penstock.broker.streams import (
    ConsumerPosition,
    Content,
    DeletedMessage,
    DeliveryRule,
    InvalidHeadersError,
    InvalidPositionError,
    InvalidSubjectError,
    PartlyPublishedError,
    PayloadCorruptError,
    PublishResult,
    StreamMessage,
    StreamOptions,
    UnknownMessageError,
)
from penstock.broker.transactions import V2 as TRANSACTIONS_V2
from penstock.core.errors import InvalidRequestError, UnavailableError
from penstock.core.record_format import framed, packed_record
from penstock.gateway.stream.caller import StreamCaller
from penstock.gateway.stream.probe import StreamProbe
from penstock.gateway.stream.subject_tail import wait_for_more
from penstock.gateway.yt.row_reader import pull
from penstock.queue import BatchTooLargeError
from penstock.testing.batches import make_batch
from tests.sim_broker import SimProducer, Write
from tests.sim_streams import SimStreams, in_parts, on_streams
from tests.sim_tablet import content


def data_of(messages: list[StreamMessage]) -> list[bytes]:
    """What is in messages."""
    return [message.data for message in messages]


def test_publish_message_keeps_the_name_and_the_headers_it_is_given() -> None:
    async def scenario(host: SimStreams) -> None:
        sequence = await host.do(host.streams.publish_reference("orders", "minio/orders/1.json", {"source": "api"}))
        assert sequence == 1
        message = await host.do(host.streams.get_message(1))
        assert message is not None
        assert (message.sequence, message.subject, message.object_name) == (1, "orders", "minio/orders/1.json")
        assert message.headers["source"] == "api"
        assert message.create_at == int(host.node.clock.wall())
        assert await host.do(host.streams.get_message(2)) is None

    on_streams(scenario)


def test_one_sequence_runs_over_all_subjects() -> None:
    async def scenario(host: SimStreams) -> None:
        names = ["a", "b", "a", "c", "b", "a"]
        assert [await host.publish(name, b"x") for name in names] == [1, 2, 3, 4, 5, 6]
        assert [message.sequence for message in await host.read("a")] == [1, 3, 6]
        assert [message.sequence for message in await host.read("a", 2, limit=1)] == [3]
        assert [message.subject for message in await host.read(">")] == names
        assert await host.do(host.streams.last_sequence("b")) == 5
        assert await host.do(host.streams.last_sequence("nowhere")) == 0

    on_streams(scenario)


def test_consumers_of_a_subject_and_where_they_stand() -> None:
    async def scenario(host: SimStreams) -> None:
        for _ in range(5):
            await host.publish("orders", b"x")
        streams = host.streams
        assert streams.position("absent", "orders") == 0
        await host.do(streams.acknowledge("processor", "orders", 3))
        await host.do(streams.acknowledge("analytics", "orders", 1))
        assert streams.position("processor", "orders") == 3
        assert streams.consumers("orders") == [
            ConsumerPosition("analytics", "orders", 1),
            ConsumerPosition("processor", "orders", 3),
        ]

    on_streams(scenario)


def test_delete_old_messages_tells_what_is_gone() -> None:
    async def scenario(host: SimStreams) -> None:
        await host.publish("a", b"x")
        await host.do(host.streams.publish_reference("b", "minio/b/2"))
        await asyncio.sleep(10)
        await host.publish("a", b"y")
        gone = await host.do(host.streams.delete_old(5))
        assert gone == [DeletedMessage(1, "a", "a/0"), DeletedMessage(2, "b", "minio/b/2")]
        assert [message.sequence for message in await host.read(">")] == [3]
        assert await host.do(host.streams.get_message(1)) is None
        assert await host.do(host.streams.delete_old(5)) == []

    on_streams(scenario)


def test_the_sequence_goes_on_after_everything_expired_and_a_restart() -> None:
    async def scenario(host: SimStreams) -> None:
        for _ in range(3):
            await host.publish("orders", b"x")
        await host.do(host.streams.acknowledge("worker", "orders", 3))
        await asyncio.sleep(100)
        assert len(await host.do(host.streams.delete_old(1))) == 3
        await host.restart()
        assert await host.publish("orders", b"new") == 4
        assert data_of(await host.do(host.streams.fetch("orders", "worker", 10))) == [b"new"]

    on_streams(scenario)


def test_the_sequence_goes_on_after_its_subject_was_deleted() -> None:
    async def scenario(host: SimStreams) -> None:
        await host.publish("orders", b"old")
        await host.do(host.broker.delete_topic("orders"))
        await host.do(host.streams.sweep())
        await host.restart()
        assert await host.publish("orders", b"new") == 2
        assert data_of(await host.read("orders")) == [b"new"]
        assert await host.do(host.streams.get_message(1)) is None

    on_streams(scenario)


def test_an_empty_payload_is_fetched_like_others() -> None:
    async def scenario(host: SimStreams) -> None:
        await host.publish("orders", b"")
        await host.publish("orders", b"x")
        assert data_of(await host.do(host.streams.fetch("orders", "worker", 10))) == [b"", b"x"]

    on_streams(scenario)


def test_a_position_moves_back_only_when_asked() -> None:
    async def scenario(host: SimStreams) -> None:
        for _ in range(4):
            await host.publish("orders", b"x")
        acknowledge = host.streams.acknowledge
        assert await host.do(acknowledge("worker", "orders", 3)) == 3
        assert await host.do(acknowledge("worker", "orders", 1)) == 3
        assert await host.do(acknowledge("worker", "orders", 1, rewind=True)) == 1
        together = (host.do(acknowledge("worker", "orders", sequence)) for sequence in (4, 2, 3))
        assert await asyncio.gather(*together) == [4, 4, 4]
        await host.restart()
        assert host.streams.position("worker", "orders") == 4

    on_streams(scenario)


def test_a_position_cannot_pass_what_was_given_out() -> None:
    async def scenario(host: SimStreams) -> None:
        await host.publish("orders", b"x")
        with pytest.raises(InvalidPositionError, match="the last is 1"):
            await host.do(host.streams.acknowledge("worker", "orders", 2))

    on_streams(scenario)


def test_a_time_to_live_of_seconds_is_kept_to_the_second() -> None:
    async def scenario(host: SimStreams) -> None:
        await host.publish("quick", b"1")
        await asyncio.sleep(1.5)
        await host.publish("quick", b"2")
        await asyncio.sleep(1.4)
        assert data_of(await host.read("quick")) == [b"1", b"2"]
        await asyncio.sleep(0.2)  # 3.1 s after the first
        assert data_of(await host.read("quick")) == [b"2"]
        await asyncio.sleep(2.5)
        assert host.partition("quick", 0).start_offset == 2

    on_streams(scenario, StreamOptions(ttl_s=3.0))


def test_each_subject_has_a_time_to_live_of_its_own() -> None:
    async def scenario(host: SimStreams) -> None:
        await host.do(host.broker.create_topic("short", 1, TopicConfig({"retention.ms": "2000"})))
        await host.publish("short", b"1")
        await host.publish("long", b"1")
        await asyncio.sleep(4)
        assert data_of(await host.read("short")) == []
        assert data_of(await host.read("long")) == [b"1"]

    on_streams(scenario)


def test_as_many_messages_are_kept_as_a_subject_says() -> None:
    async def scenario(host: SimStreams) -> None:
        await host.do(host.broker.create_topic("few", 1, TopicConfig({"penstock.retention.messages": "2"})))
        for at in range(5):
            await host.publish("few", b"%d" % at)
        await asyncio.sleep(2)
        assert data_of(await host.read("few")) == [b"3", b"4"]

    on_streams(scenario)


def test_a_payload_goes_with_its_message() -> None:
    async def scenario(host: SimStreams) -> None:
        await host.publish("files", content(5000))
        await host.publish("files", content(6000))
        assert host.streams.payloads.sizes() == (2, 0)
        await asyncio.sleep(10)
        await host.publish("files", content(7000))
        await host.do(host.streams.delete_old(5))
        assert host.streams.payloads.sizes() == (1, 0)
        assert await host.payload(3) == content(7000)
        with pytest.raises(UnknownMessageError):
            await host.payload(1)

    on_streams(scenario)


def test_payloads_go_with_their_topic_too() -> None:
    async def scenario(host: SimStreams) -> None:
        await host.publish("files", content(5000))
        await host.do(host.broker.delete_topic("files"))
        await host.do(host.streams.sweep())
        assert host.streams.payloads.sizes() == (0, 0)

    on_streams(scenario)


def test_a_payload_in_parts_is_read_back_whole_and_in_ranges() -> None:
    async def scenario(host: SimStreams) -> None:
        data = content(9_000_001)
        published = await host.do(host.streams.publish_parts("files", in_parts(data, 700_000), {"name": "a"}))
        (message,) = await host.read("files")
        assert (message.data, message.object_name) == (b"", published.object_name)
        assert message.payload is not None
        assert (message.payload.size, message.headers["name"]) == (len(data), "a")
        assert await host.payload(1) == data
        assert await host.payload(1, 4_194_300, 4_194_310) == data[4_194_300:4_194_310]
        assert await host.payload(1, 9_000_000) == data[9_000_000:]

    on_streams(scenario)


def test_an_upload_that_does_not_match_its_checksum_leaves_nothing() -> None:
    async def scenario(host: SimStreams) -> None:
        with pytest.raises(PayloadCorruptError):
            await host.do(host.streams.publish_parts("files", in_parts(content(5_000_000), 1_000_000), crc32c=1))
        assert await host.read("files") == []
        assert host.streams.payloads.sizes() == (0, 0)

    on_streams(scenario)


def test_what_kafka_producers_write_has_sequences_as_well() -> None:
    async def scenario(host: SimStreams) -> None:
        now_ms = int(host.node.clock.wall() * 1000)
        topic = await host.do(host.broker.create_topic("shared", 1))
        await host.do(host.broker.produce(topic, 0, make_batch([b"k1", b"k2"], timestamp=now_ms)))
        assert await host.publish("shared", b"s1") == 3
        await host.do(host.broker.produce(topic, 0, make_batch([b"k3"], timestamp=now_ms)))
        await asyncio.sleep(0.1)
        found = [(one.sequence, one.data) for one in await host.read("shared")]
        assert found == [(1, b"k1"), (2, b"k2"), (3, b"s1"), (4, b"k3")]

    on_streams(scenario)


@pytest.mark.timeout(30)
def test_a_topic_whose_messages_are_all_gone_becomes_a_subject() -> None:
    """Start and end are the same, beyond 0: there is nothing to number, and the sequencer must not try for ever."""

    async def scenario(host: SimStreams) -> None:
        now_ms = int(host.node.clock.wall() * 1000)
        topic = await host.do(host.broker.create_topic("emptied", 1))
        await host.do(host.broker.produce(topic, 0, make_batch([b"1", b"2", b"3"], timestamp=now_ms)))
        await host.do(host.broker.partition(topic, 0).trim(3))
        assert host.partition("emptied", 0).start_offset == host.partition("emptied", 0).end_offset == 3
        for _ in range(2):
            assert await host.do(host.streams.last_sequence("emptied")) == 0
            assert await host.do(host.streams.fetch("*", "worker", 10)) == []
        await host.restart()
        assert await host.do(host.streams.last_sequence("emptied")) == 0
        await host.do(host.broker.produce(host.broker.catalog.topic("emptied"), 0, make_batch([b"4"], timestamp=now_ms)))
        assert data_of(await host.read("emptied")) == [b"4"]

    on_streams(scenario)


@pytest.mark.timeout(30)
def test_what_is_deleted_before_it_has_a_sequence_holds_nobody_up() -> None:
    """Messages are written, and deleted while the tablet of the sequences is down: it goes on with what is left."""

    async def scenario(host: SimStreams) -> None:
        await host.publish("orders", b"1")
        publishing = asyncio.create_task(host.do(host.streams.publish("orders", b"2")))
        partition = host.partition("orders", 0)
        host.streams._sequencer._writer.cancel()  # type: ignore[union-attr]
        assert await partition.wait_beyond(1, 10)
        await host.do(partition.trim(2))
        host.streams._sequencer.start()
        with pytest.raises(UnavailableError, match="gone"):
            await asyncio.wait_for(publishing, 10)
        assert await host.publish("orders", b"3") == 2
        assert data_of(await host.read("orders")) == [b"3"]

    on_streams(scenario)


def test_open_transactions_are_invisible_and_delay_what_follows() -> None:
    async def scenario(host: SimStreams) -> None:
        await host.do(host.broker.create_topic("shared", 1))
        await host.publish("shared", b"before")
        producer = SimProducer(host, "tx", version=TRANSACTIONS_V2)
        await producer.initialise()
        await producer.write(Write("shared", 0), [b"open"])
        await host.publish("shared", b"after")
        await host.publish("other", b"elsewhere")
        assert data_of(await host.read("shared")) == [b"before"]
        assert data_of(await host.read(">")) == [b"before"]
        assert data_of(await host.read("other")) == [b"elsewhere"]
        assert await host.do(host.streams.last_sequence("shared")) == 1
        assert [await host.do(host.streams.get_message(sequence)) for sequence in (2, 3)] == [None, None]
        await producer.end(commit=False)
        await asyncio.sleep(0.1)
        assert await host.do(host.streams.get_message(2)) is None
        assert data_of([message for message in [await host.do(host.streams.get_message(3))] if message]) == [b"after"]
        assert data_of(await host.read("shared")) == [b"before", b"after"]
        assert data_of(await host.read(">")) == [b"before", b"after", b"elsewhere"]

    on_streams(scenario)


def test_a_topic_of_several_partitions_is_no_subject() -> None:
    async def scenario(host: SimStreams) -> None:
        await host.do(host.broker.create_topic("wide", 2))
        with pytest.raises(InvalidSubjectError, match="2 partitions"):
            await host.publish("wide", b"x")
        with pytest.raises(InvalidSubjectError):
            await host.publish("a/b", b"x")
        with pytest.raises(UnknownTopicError):
            await host.read("nowhere")
        with pytest.raises(InvalidHeadersError, match="penstock"):
            await host.publish("fine", b"x", {"penstock.size": "1"})

    on_streams(scenario)


def test_patterns_choose_subjects() -> None:
    async def scenario(host: SimStreams) -> None:
        for name in ("orders.eu.new", "orders.us.new", "orders.eu.old", "other"):
            await host.publish(name, name.encode())
        assert data_of(await host.read("orders.*.new")) == [b"orders.eu.new", b"orders.us.new"]
        assert data_of(await host.read("orders.eu.>")) == [b"orders.eu.new", b"orders.eu.old"]
        assert data_of(await host.read("*")) == [b"other"]
        await host.do(host.broker.internal_topic(OFFSETS_TOPIC))
        assert len(await host.read(">")) == 4, "a topic of the broker itself is no subject"

    on_streams(scenario)


def test_messages_are_shared_by_members_and_handed_out_again() -> None:
    async def scenario(host: SimStreams) -> None:
        for at in range(4):
            await host.publish("jobs", b"%d" % at)
        await host.do(host.streams.set_rule("workers", "jobs", DeliveryRule(5.0)))
        fetch = host.streams.fetch
        first, second = await host.do(fetch("jobs", "workers", 2)), await host.do(fetch("jobs", "workers", 10))
        assert (data_of(first), data_of(second)) == ([b"0", b"1"], [b"2", b"3"])
        assert await host.do(host.streams.acknowledge("workers", "jobs", 4)) == 0
        assert await host.do(host.streams.acknowledge("workers", "jobs", 1)) == 1
        assert await host.do(fetch("jobs", "workers", 10)) == []
        await asyncio.sleep(6)
        assert data_of(await host.do(fetch("jobs", "workers", 10))) == [b"1", b"2"]
        await host.restart()
        assert data_of(await host.do(host.streams.fetch("jobs", "workers", 10))) == [b"1", b"2"]
        for sequence in (2, 3):
            await host.do(host.streams.acknowledge("workers", "jobs", sequence))
        assert host.streams.position("workers", "jobs") == 4

    on_streams(scenario)


def test_what_nobody_could_deal_with_becomes_a_dead_letter() -> None:
    async def scenario(host: SimStreams) -> None:
        await host.publish("jobs", b"poison", {"kind": "bad"})
        await host.publish("jobs", content(5000))
        await host.do(host.streams.set_rule("workers", "jobs", DeliveryRule(1.0, 2, "jobs.dead")))
        for _ in range(2):
            assert len(await host.do(host.streams.fetch("jobs", "workers", 10))) == 2
            await asyncio.sleep(2)
        assert await host.do(host.streams.fetch("jobs", "workers", 10)) == []
        small, large = await host.read("jobs.dead")
        assert (small.data, small.headers["kind"], small.headers["dead-letter.sequence"]) == (b"poison", "bad", "1")
        assert await host.payload(large.sequence) == content(5000)
        assert host.streams.position("workers", "jobs") == 2

    on_streams(scenario)


def test_a_batch_has_sequences_in_a_row() -> None:
    async def scenario(host: SimStreams) -> None:
        contents = [Content(b"%d" % at, {}) for at in range(5)]
        published = await host.do(host.streams.publish_batch("orders", contents))
        assert [one.sequence for one in published] == [1, 2, 3, 4, 5]
        mixed = [Content(b"a", {}), Content(content(5000), {}), Content(b"b", {})]
        published = await host.do(host.streams.publish_batch("orders", mixed))
        assert [one.sequence for one in published] == [6, 7, 8]
        assert data_of(await host.read("orders", 6)) == [b"a", b"", b"b"]

    on_streams(scenario)


def test_messages_published_at_the_same_time_share_a_batch_and_keep_their_order() -> None:
    async def scenario(host: SimStreams) -> None:
        names = ["a", "b", "a"]
        await host.publish("a", b"first")
        sent = [(names[at % 3], b"%d" % at) for at in range(300)]
        published = await host.do(_at_once([host.streams.publish(*one) for one in sent]))
        assert len({one.sequence for one in published}) == 300
        for name in ("a", "b"):
            assert data_of(await host.read(name))[-100:] == [data for subject, data in sent if subject == name][-100:]
        for (subject, data), one in zip(sent, published, strict=True):
            message = await host.do(host.streams.get_message(one.sequence))
            assert message is not None
            assert (message.subject, message.data, message.object_name) == (subject, data, one.object_name)
        probe = host.broker.partition(host.broker.catalog.topic("a"), 0).probe
        assert (probe.messages_in, probe.batches_in) == (201, 5)

    on_streams(scenario)


async def _at_once(work: list[Coroutine[Any, Any, PublishResult]]) -> list[PublishResult]:
    return list(await asyncio.gather(*work))


def test_one_message_that_is_refused_does_not_fail_others() -> None:
    async def scenario(host: SimStreams) -> None:
        await host.do(host.broker.create_topic("tight", 1, TopicConfig({"max.message.bytes": "600"})))
        headers = {"name": "x" * 700}

        async def both() -> list[object]:
            publish = host.streams.publish_reference
            work = (publish("tight", "a"), publish("tight", "b", headers), publish("tight", "c"))
            return list(await asyncio.gather(*work, return_exceptions=True))

        first, refused, last = await host.do(both())
        assert isinstance(refused, BatchTooLargeError)
        assert (first, last) == (1, 2)

    on_streams(scenario)


def test_what_happens_to_messages_is_counted() -> None:
    async def scenario(host: SimStreams) -> None:
        probe = host.streams.probe
        await host.publish("jobs", b"12345")
        large = await host.publish("jobs", content(5000))
        assert (probe.published, probe.published_bytes) == (2, 5005)
        await host.do(host.streams.set_rule("workers", "jobs", DeliveryRule(1.0, 2, "jobs.dead")))
        for _ in range(3):
            await host.do(host.streams.fetch("jobs", "workers", 10))
            await asyncio.sleep(2)
        assert (probe.redelivered, probe.dead_lettered, probe.read) == (2, 2, 4)
        before = probe.read_bytes
        assert await host.payload(large) == content(5000)
        assert probe.read_bytes - before == 5000
        await host.do(host.streams.delete_old(0))
        assert probe.expired == 4

    on_streams(scenario)


def test_a_publisher_is_told_that_the_node_stops() -> None:
    async def scenario(host: SimStreams) -> None:
        await host.publish("orders", b"first")
        publishing = asyncio.create_task(host.do(host.streams.publish("orders", b"last")))
        await asyncio.sleep(0)
        await host.do(host.streams.stop())
        with pytest.raises(UnavailableError):
            await asyncio.wait_for(publishing, 10)
        await host.restart()
        await asyncio.sleep(1)
        assert data_of(await host.read("orders")) == [b"first", b"last"]

    on_streams(scenario)


def test_kafka_tools_see_how_far_consumers_are() -> None:
    async def scenario(host: SimStreams) -> None:
        for _ in range(3):
            await host.publish("orders", b"x")
        await host.do(host.streams.acknowledge("worker", "orders", 2))
        await host.do(host.streams.sweep())
        (position,) = host.broker.consumers.positions("stream:worker").values()
        assert position.offset == 2

    on_streams(scenario)


def test_a_durable_fetch_by_a_pattern_passes_over_any_number_of_other_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.broker.streams.reading.SCANNED_RUNS_MAX", 5)

    async def scenario(host: SimStreams) -> None:
        for at in range(12):
            await host.publish(f"noise.{at % 2}", b"n")
        await host.publish("orders.eu", b"wanted")
        assert data_of(await host.do(host.streams.fetch("orders.*", "worker", 10))) == [b"wanted"]

    on_streams(scenario)


def test_the_first_read_by_name_of_what_kafka_wrote_is_complete() -> None:
    """By every way to read, each on a topic of its own that was no subject before."""

    async def scenario(host: SimStreams) -> None:
        now_ms = int(host.node.clock.wall() * 1000)
        for name in ("read", "fetch", "shared", "last"):
            topic = await host.do(host.broker.create_topic(name, 1))
            await host.do(host.broker.produce(topic, 0, make_batch([b"1", b"2"], timestamp=now_ms)))
        assert data_of((await host.do(host.streams.read("read", 1, 10))).messages) == [b"1", b"2"]
        assert data_of(await host.do(host.streams.fetch("fetch", "worker", 10))) == [b"1", b"2"]
        await host.do(host.streams.set_rule("team", "shared", DeliveryRule(5.0)))
        assert data_of(await host.do(host.streams.fetch("shared", "team", 10))) == [b"1", b"2"]
        assert await host.do(host.streams.last_sequence("last")) == 8
        await host.do(host.broker.produce(host.broker.catalog.topic("read"), 0, make_batch([b"3"], timestamp=now_ms)))
        assert data_of((await host.do(host.streams.read("read", 1, 10))).messages) == [b"1", b"2", b"3"]

    on_streams(scenario)


def test_consumers_of_a_pattern_are_shown_for_it_and_for_its_subjects() -> None:
    async def scenario(host: SimStreams) -> None:
        for name in ("orders.eu", "orders.us", "other"):
            await host.publish(name, b"x")
        await host.do(host.streams.acknowledge("all", "orders.*", 1))
        await host.do(host.streams.acknowledge("one", "orders.us", 2))
        by_pattern, by_name = ConsumerPosition("all", "orders.*", 1), ConsumerPosition("one", "orders.us", 2)
        assert host.streams.consumers("orders.eu") == [by_pattern]
        assert host.streams.consumers("orders.us") == [by_pattern, by_name]
        assert host.streams.consumers("orders.*") == host.streams.consumers(">") == [by_pattern, by_name]
        assert host.streams.consumers("other") == []
        await host.do(host.streams.sweep())
        offsets = {
            (host.broker.catalog.topic_by_id(queue.topic_id).name, position.offset)
            for queue, position in host.broker.consumers.positions("stream:all").items()
        }
        assert offsets == {("orders.eu", 1), ("orders.us", 0)}
        await host.restart()
        assert host.streams.consumers("orders.eu") == [by_pattern]

    on_streams(scenario)


def test_a_follower_that_finds_nothing_where_something_should_be_lets_others_run() -> None:
    """Should what is readable and what is read ever disagree, a follower must not ask again and again without a pause."""

    async def scenario(host: SimStreams) -> None:
        await host.publish("orders", b"x")
        began = asyncio.get_running_loop().time()
        caller = StreamCaller(host.streams, host.broker, StreamProbe(), principal="User:ANONYMOUS", host="", client="")
        assert await host.do(wait_for_more(caller, "orders", 1, 30.0))
        assert asyncio.get_running_loop().time() > began
        assert not await host.do(wait_for_more(caller, "orders", 2, 1.0, gives_up=True))

    on_streams(scenario)


def test_a_kafka_message_with_odd_headers_becomes_a_dead_letter_too() -> None:
    """Names that are empty, more headers than a message here may have: what cannot be written would be tried for ever."""

    async def scenario(host: SimStreams) -> None:
        now_ms = int(host.node.clock.wall() * 1000)
        topic = await host.do(host.broker.create_topic("jobs", 1))
        headers = [(b"", b"nameless"), (b"huge", b"h" * 100_000), (b"kind", b"bad")]
        batch = framed(packed_record(0, b"poison", headers=headers), 1, (now_ms, now_ms))
        await host.do(host.broker.produce(topic, 0, batch))
        await host.do(host.streams.set_rule("workers", "jobs", DeliveryRule(1.0, 1, "jobs.dead")))
        assert len(await host.do(host.streams.fetch("jobs", "workers", 10))) == 1
        await asyncio.sleep(2)
        assert await host.do(host.streams.fetch("jobs", "workers", 10)) == []
        (letter,) = await host.read("jobs.dead")
        assert (letter.data, letter.headers["kind"], letter.headers["dead-letter.headers_left_out"]) == (b"poison", "bad", "1")

    on_streams(scenario)


@pytest.mark.parametrize("ack_wait_s", [0.0, -1.0, float("nan"), float("inf")])
def test_a_rule_of_delivery_has_a_time_that_ends(ack_wait_s: float) -> None:
    async def scenario(host: SimStreams) -> None:
        with pytest.raises(InvalidRequestError, match="ack_wait_s"):
            await host.do(host.streams.set_rule("workers", "jobs", DeliveryRule(ack_wait_s)))

    on_streams(scenario)


def test_a_position_of_what_is_no_pattern_is_refused() -> None:
    async def scenario(host: SimStreams) -> None:
        sequence = await host.publish("orders", b"x")
        for pattern in ("orders..*", ">.orders", "*." + "x" * 300):
            with pytest.raises(InvalidSubjectError):
                await host.do(host.streams.acknowledge("worker", pattern, sequence))
        with pytest.raises(InvalidHeadersError, match="UTF-8"):
            await host.publish("orders", b"x", {"name": "\udcff"})

    on_streams(scenario)


def test_others_run_while_a_reader_passes_over_what_is_void() -> None:
    """Aborted messages are read from memory without waiting for anything: many of them must not keep a node from all else."""

    async def scenario(host: SimStreams) -> None:
        await host.do(host.broker.create_topic("void", 1))
        producer = SimProducer(host, "tx", version=TRANSACTIONS_V2)
        await producer.initialise()
        for _ in range(20):
            await producer.write(Write("void", 0), [b"x"])
        await producer.end(commit=False)
        await host.publish("void", b"last")
        turns = 0

        async def count_turns() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.create_task(count_turns())
        read = await host.do(host.streams.read("void", 1, 10, bytes_max=1))
        pulled = await host.do(pull(host.partition("void", 0), None, 0, rows_max=1, weight_max=1))
        counting.cancel()
        assert data_of(read.messages) == [b"last"]
        assert pulled.next_offset is not None
        assert turns >= 40, "one for each batch that was passed over, twice"

    on_streams(scenario)


def test_a_batch_that_fails_half_way_tells_what_is_published(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(host: SimStreams) -> None:
        async def fail(*_: object) -> PublishResult:
            raise UnavailableError("the payload store is full")

        monkeypatch.setattr(host.streams, "publish_parts", fail)
        with pytest.raises(PartlyPublishedError, match="first 2 messages") as caught:
            await host.do(host.streams.publish_batch("orders", [Content(data, {}) for data in (b"a", b"b", content(5000), b"c")]))
        assert [one.sequence for one in caught.value.published] == [1, 2]
        assert data_of(await host.read("orders")) == [b"a", b"b"]
        with pytest.raises(InvalidHeadersError):
            await host.do(host.streams.publish_batch("orders", [Content(b"d", {}), Content(b"e", {"penstock.size": "1"})]))
        assert len(await host.read("orders")) == 2

    on_streams(scenario)
