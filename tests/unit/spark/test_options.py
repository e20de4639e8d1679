"""The options of the Spark source: read as the Kafka source reads them, and refused with a reason."""

from __future__ import annotations

import pytest

from penstock.kafka.client import EARLIEST, LATEST, Address, TopicPartition
from penstock.spark.errors import OptionError
from penstock.spark.kafka_options import HARMLESS, REFUSED, client_options
from penstock.spark.options import COLUMNS, ReadMode, ReadOptions, read_options
from penstock.spark.write_options import write_options

SERVERS = {"kafka.bootstrap.servers": "127.0.0.1:9092"}
ON_T = {**SERVERS, "subscribe": "t"}
USER = {
    "kafka.security.protocol": "SASL_PLAINTEXT",
    "kafka.sasl.jaas.config": 'x.PlainLoginModule required username="ann" password="a \\"b\\"";',
}


def batch(**options: str) -> ReadOptions:
    return read_options({**ON_T, **options}, "batch")


def stream(**options: str) -> ReadOptions:
    return read_options({**ON_T, **options}, "stream")


def test_defaults_are_those_of_the_kafka_source() -> None:
    read = batch()
    assert read.subscription.names == ("t",)
    assert (read.starting.end, read.ending.end) == (EARLIEST, LATEST)
    assert stream().starting.end == LATEST
    assert read.fails_on_data_loss
    assert not read.is_committed
    assert read.columns == COLUMNS[:-1]
    assert stream().trigger_delay_max_s == 15 * 60


def test_names_are_taken_in_any_case() -> None:
    read = read_options({"KAFKA.Bootstrap.Servers": "h:1", "SUBSCRIBE": "t", "failondataloss": "FALSE"}, "batch")
    assert not read.fails_on_data_loss
    assert read.client.bootstrap == (Address("h", 1),)


@pytest.mark.parametrize(
    ("name", "hint"),
    [("startingOffset", "startingOffsets"), ("kafka.isolation.levle", "kafka.isolation.level"), ("subscribed", "subscribe")],
)
def test_an_unknown_option_is_named_with_the_nearest_known_one(name: str, hint: str) -> None:
    with pytest.raises(OptionError, match=rf"there is no option {name.lower()}; did you mean {hint}\?"):
        read_options({**ON_T, name: "x"}, "batch")


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_would_change_the_meaning_of_a_read_is_refused(name: str) -> None:
    with pytest.raises(OptionError, match=f"option {name} is not taken"):
        read_options({**ON_T, name: "x"}, "batch")


def test_settings_of_kafkas_own_consumer_do_no_harm() -> None:
    assert read_options({**ON_T, **dict.fromkeys(HARMLESS, "1")}, "stream") == stream()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscribe": "t"}, "say where the broker is"),
        (SERVERS, "one of subscribe, subscribePattern and assign; none is given"),
        ({**ON_T, "assign": '{"t":[0]}'}, "subscribe and assign are given"),
        ({**SERVERS, "subscribe": " , "}, "subscribe is empty"),
        ({**SERVERS, "subscribePattern": "("}, "no regular expression"),
        ({**SERVERS, "assign": '{"t":0}'}, "it takes partitions by topic"),
        ({**SERVERS, "assign": "t"}, "nor JSON"),
        ({**SERVERS, "assign": '{"t":[-1]}'}, "the number of a partition"),
        ({**ON_T, "startingOffsets": "first"}, "startingOffsets is 'first'"),
        ({**ON_T, "startingOffsets": '{"t":{"0":-3}}'}, "numbers from -2 on"),
        ({**ON_T, "startingOffsets": '{"t":5}'}, "by topic and partition"),
        ({**ON_T, "startingTimestamp": "yesterday"}, "startingTimestamp is 'yesterday'"),
        ({**ON_T, "failOnDataLoss": "maybe"}, "true or false"),
        ({**ON_T, "minPartitions": "0"}, "a whole number from 1 on"),
        ({**ON_T, "kafka.isolation.level": "none"}, "read_uncommitted or read_committed"),
        ({**ON_T, "columns": "key,name"}, "columns names 'name'"),
        ({**ON_T, "columns": ","}, "columns is empty"),
        ({**ON_T, "valueFormat": "xml"}, "json or avro"),
        ({**ON_T, "valueSchema": "id INT"}, "goes with valueFormat"),
        ({**ON_T, "path": "x"}, "takes no path"),
        ({**ON_T, "kafka.security.protocol": "TLS"}, "PLAINTEXT, SSL"),
        ({**ON_T, "kafka.security.protocol": "SASL_SSL"}, "a user and a password"),
        ({**ON_T, **USER, "kafka.sasl.mechanism": "GSSAPI"}, "it takes PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"),
        ({**ON_T, "kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "PLAIN"}, "a user and a password"),
        ({**ON_T, "kafka.security.protocol": "SSL", "kafka.ssl.truststore.location": "x.jks"}, "a file in PEM"),
    ],
)
def test_what_cannot_be_meant_is_refused(options: dict[str, str], message: str) -> None:
    for wanted in ("batch", "stream"):
        with pytest.raises(OptionError, match=message):
            read_options(options, wanted)


@pytest.mark.parametrize(
    ("wanted", "options"),
    [
        ("stream", {"endingOffsets": "latest"}),
        ("stream", {"endingTimestamp": "1"}),
        ("stream", {"endingOffsetsByTimestamp": "{}"}),
        ("batch", {"maxOffsetsPerTrigger": "5"}),
        ("batch", {"consumer": "c"}),
        ("batch", {"startingOffsets": "latest"}),
        ("batch", {"startingOffsets": '{"t":{"0":-1}}'}),
        ("batch", {"endingOffsets": "earliest"}),
        ("batch", {"endingOffsets": '{"t":{"0":-2}}'}),
        ("stream", {"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}),
        ("stream", {"maxTriggerDelay": "soon"}),
    ],
)
def test_what_fits_only_the_other_kind_of_read_is_refused(wanted: ReadMode, options: dict[str, str]) -> None:
    with pytest.raises(OptionError, match=next(iter(options))):
        read_options({**ON_T, **options}, wanted)


def test_offsets_are_given_by_topic_and_partition() -> None:
    read = stream(startingOffsets='{"t":{"0":23,"1":-1,"2":-2}}')
    assert read.starting.offsets == {
        TopicPartition("t", 0): 23,
        TopicPartition("t", 1): LATEST,
        TopicPartition("t", 2): EARLIEST,
    }


def test_a_time_goes_before_times_and_those_before_offsets() -> None:
    everything = {"startingOffsets": "earliest", "startingOffsetsByTimestamp": '{"t":{"0":7}}', "startingTimestamp": "5"}
    assert batch(**everything).starting.timestamp_ms == 5
    del everything["startingTimestamp"]
    assert batch(**everything).starting.timestamps_ms == {TopicPartition("t", 0): 7}


def test_headers_are_a_column_only_if_asked_for() -> None:
    assert batch(includeHeaders="true").columns == COLUMNS
    assert batch(columns="offset, KEY").columns == ("offset", "key")


@pytest.mark.parametrize(("text", "seconds"), [("30s", 30), ("15m", 900), ("2h", 7200), ("250ms", 0.25), ("250", 0.25)])
def test_a_delay_has_a_unit(text: str, seconds: float) -> None:
    assert stream(maxTriggerDelay=text).trigger_delay_max_s == pytest.approx(seconds)


def test_a_user_is_read_from_the_form_that_java_takes() -> None:
    read = read_options({**ON_T, **USER, "kafka.sasl.mechanism": "PLAIN"}, "batch")
    security = read.client.security
    assert (security.tls, security.username, security.password) == (False, "ann", 'a "b"')
    assert 'a "b"' not in repr(security)


def test_addresses_have_a_port_of_their_own_or_kafkas() -> None:
    assert client_options({"kafka.bootstrap.servers": "a:1, b,[::1]:3,[::2]"}).bootstrap == (
        Address("a", 1),
        Address("b", 9092),
        Address("::1", 3),
        Address("::2", 9092),
    )


@pytest.mark.parametrize("text", ["", " , ", "a:b", "a:0", "a:70000", ":1"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match=r"kafka\.bootstrap\.servers"):
        client_options({"kafka.bootstrap.servers": text})


def test_a_table_without_options_is_told_what_it_lacks() -> None:
    with pytest.raises(OptionError, match=r"this table has no options: create it without columns"):
        read_options({}, "any")
    with pytest.raises(OptionError, match=r"a table of a topic can only be read; write with format\('penstock'\)"):
        write_options({})
