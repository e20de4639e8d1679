"""Clients say who they are: every mechanism, with and without TLS, through three clients; and what becomes of the others."""

from __future__ import annotations

import asyncio
import socket
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from penstock.kafka.protocol import errors, keys
from penstock.kafka.protocol.cluster import ApiVersionsRequest, ApiVersionsResponse
from penstock.kafka.protocol.metadata import MetadataRequest, MetadataResponse
from penstock.kafka.protocol.sasl import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
    UserName,
)
from tests.e2e.kafka.raw_client import RawClient, frame_of
from tests.e2e.kafka.running_gateway import RunningGateway
from tests.e2e.kafka.secured import (
    ADMIN,
    ENCRYPTED,
    PASSWORD,
    PLAINTEXT,
    authenticate,
    client_tls,
    confluent_options,
    python_options,
    secured,
    server_tls,
)
from tests.e2e.kafka.untidy_client import untidy_client

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import aiokafka
    import kafka

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
VALUES = [b"value %d" % number for number in range(50)]
TIMEOUT_S = 20

Round = Callable[[str, str, str, str], list[bytes]]


@pytest.fixture(scope="module")
def gateways(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, RunningGateway]]:
    """One gateway for each protocol."""
    plain = RunningGateway(tmp_path_factory.mktemp("plain"), broker_options=secured())
    encrypted = RunningGateway(tmp_path_factory.mktemp("encrypted"), broker_options=secured(), tls=server_tls())
    with plain, encrypted:
        yield {PLAINTEXT: plain, ENCRYPTED: encrypted}


@pytest.fixture
def gateway(gateways: dict[str, RunningGateway]) -> RunningGateway:
    """The one without TLS."""
    return gateways[PLAINTEXT]


@pytest.fixture
def client(gateway: RunningGateway) -> Iterator[RawClient]:
    """A raw connection on which nothing was sent yet."""
    with RawClient(gateway.port) as connected:
        yield connected


def confluent_round(bootstrap: str, protocol: str, mechanism: str, topic: str) -> list[bytes]:
    options = confluent_options(bootstrap, protocol, mechanism)
    producer = confluent_kafka.Producer(options)
    for value in VALUES:
        producer.produce(topic, value)
    assert producer.flush(TIMEOUT_S) == 0
    consumer = confluent_kafka.Consumer({**options, "group.id": "g", "enable.auto.commit": False})
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    found: list[bytes] = []
    while len(found) < len(VALUES):
        messages = consumer.consume(len(VALUES), TIMEOUT_S)
        assert messages
        found += [message.value() or b"" for message in messages]
    consumer.close()
    return found


def kafka_python_round(bootstrap: str, protocol: str, mechanism: str, topic: str) -> list[bytes]:
    options = python_options(bootstrap, protocol, mechanism)
    with untidy_client():
        producer = kafka.KafkaProducer(**options)
        for value in VALUES:
            producer.send(topic, value)
        producer.flush(TIMEOUT_S)
        producer.close()
        consumer = kafka.KafkaConsumer(**options, consumer_timeout_ms=TIMEOUT_S * 1000, enable_auto_commit=False)
        partition = kafka.TopicPartition(topic, 0)
        consumer.assign([partition])
        consumer.seek(partition, 0)
        found = [next(consumer).value for _ in VALUES]
        consumer.close()
        del producer, consumer
    return found


def aiokafka_round(bootstrap: str, protocol: str, mechanism: str, topic: str) -> list[bytes]:
    options = python_options(bootstrap, protocol, mechanism)

    async def run() -> list[bytes]:
        async with aiokafka.AIOKafkaProducer(**options) as producer:
            for value in VALUES:
                await producer.send(topic, value)
        async with aiokafka.AIOKafkaConsumer(**options, enable_auto_commit=False) as consumer:
            partition = aiokafka.TopicPartition(topic, 0)
            consumer.assign([partition])
            consumer.seek(partition, 0)
            return [(await asyncio.wait_for(consumer.getone(), TIMEOUT_S)).value for _ in VALUES]

    return asyncio.run(run())


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("protocol", [PLAINTEXT, ENCRYPTED])
@pytest.mark.parametrize("round_trip", [confluent_round, kafka_python_round, aiokafka_round])
def test_a_client_that_says_who_it_is_is_served(
    gateways: dict[str, RunningGateway], round_trip: Round, protocol: str, mechanism: str
) -> None:
    topic = f"{round_trip.__name__}-{mechanism}"
    gateways[protocol].create_topic(topic)
    assert round_trip(gateways[protocol].bootstrap, protocol, mechanism, topic) == VALUES


@pytest.mark.parametrize("use_uvloop", [True, False])
def test_much_data_crosses_tls_and_is_read_back_from_disk(tmp_path_factory: pytest.TempPathFactory, use_uvloop: bool) -> None:
    path = tmp_path_factory.mktemp("much")
    with RunningGateway(path, broker_options=secured(), tls=server_tls(), use_uvloop=use_uvloop) as gateway:
        gateway.create_topic("much")
        options = confluent_options(gateway.bootstrap, ENCRYPTED)
        producer = confluent_kafka.Producer(options)
        sent = [b"%d " % number * 3000 for number in range(1500)]
        for value in sent:
            producer.produce("much", value)
        assert producer.flush(TIMEOUT_S) == 0
        gateway.restart()
        consumer = confluent_kafka.Consumer({**options, "group.id": "g", "enable.auto.commit": False})
        consumer.assign([confluent_kafka.TopicPartition("much", 0, 0)])
        found: list[bytes] = []
        while len(found) < len(sent):
            messages = consumer.consume(500, TIMEOUT_S)
            assert messages, f"only {len(found)} of {len(sent)} came"
            found += [message.value() or b"" for message in messages]
        consumer.close()
        assert found == sent


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(("user", "password"), [(ADMIN, "wrong"), ("stranger", PASSWORD)])
def test_a_wrong_password_is_refused(gateway: RunningGateway, mechanism: str, user: str, password: str) -> None:
    told: list[confluent_kafka.KafkaError] = []
    options = confluent_options(gateway.bootstrap, PLAINTEXT, mechanism, user, password)
    settings: dict[str, Any] = {**options, "error_cb": told.append, "log_level": 0}
    admin = AdminClient(settings)
    deadline = time.monotonic() + TIMEOUT_S
    while not told and time.monotonic() < deadline:
        admin.poll(0.1)
    assert told[0].code() == confluent_kafka.KafkaError._AUTHENTICATION
    assert "wrong user name or password" in told[0].str()


def test_a_wrong_password_is_told_and_the_connection_closed(client: RawClient) -> None:
    response = authenticate(client, password="wrong")
    assert response.error_code == errors.SASL_AUTHENTICATION_FAILED
    assert response.error_message == "authentication failed: wrong user name or password"
    assert client.receive_frame() is None


@pytest.mark.parametrize(
    "token", [b"", b"admin", b"\0admin\0", b"\0\0secret", b"ben\0admin\0" + PASSWORD.encode(), b"\0\xff\0\xff"]
)
def test_a_token_that_is_none_is_refused(client: RawClient, token: bytes) -> None:
    client.call(keys.SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeResponse)
    response = client.call(keys.SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(auth_bytes=token), SaslAuthenticateResponse)
    assert response.error_code == errors.SASL_AUTHENTICATION_FAILED
    assert client.receive_frame() is None


def test_anything_else_before_that_closes_the_connection(client: RawClient) -> None:
    versions = client.call(keys.API_VERSIONS, 0, ApiVersionsRequest(), ApiVersionsResponse)
    assert versions.error_code == errors.NONE
    client.send(keys.METADATA, 1, MetadataRequest())
    assert client.receive_frame() is None


def test_a_huge_request_before_that_closes_the_connection(client: RawClient) -> None:
    client.socket.sendall((600 << 10).to_bytes(4, "big"))
    assert client.receive_frame() is None


def test_a_mechanism_that_is_not_offered_is_refused_with_those_that_are(client: RawClient) -> None:
    response = client.call(keys.SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism="GSSAPI"), SaslHandshakeResponse)
    assert response.error_code == errors.UNSUPPORTED_SASL_MECHANISM
    assert sorted(response.mechanisms) == sorted(MECHANISMS)
    assert client.receive_frame() is None


def test_a_token_without_a_handshake_is_out_of_place(client: RawClient) -> None:
    response = client.call(keys.SASL_AUTHENTICATE, 1, SaslAuthenticateRequest(auth_bytes=b"x"), SaslAuthenticateResponse)
    assert response.error_code == errors.ILLEGAL_SASL_STATE


def test_whoever_is_known_does_not_authenticate_again(client: RawClient) -> None:
    assert authenticate(client).error_code == errors.NONE
    handshake = client.call(keys.SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeResponse)
    assert handshake.error_code == errors.ILLEGAL_SASL_STATE
    assert client.call(keys.METADATA, 1, MetadataRequest(), MetadataResponse).brokers


@pytest.mark.parametrize(("password", "is_right"), [(PASSWORD, True), ("wrong", False)])
def test_old_clients_send_bare_tokens(client: RawClient, password: str, is_right: bool) -> None:
    response = client.call(keys.SASL_HANDSHAKE, 0, SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeResponse)
    assert response.error_code == errors.NONE
    token = f"\0{ADMIN}\0{password}".encode()
    client.socket.sendall(len(token).to_bytes(4, "big") + token)
    if is_right:
        assert client.socket.recv(4, 0) == bytes(4)
        assert client.call(keys.METADATA, 1, MetadataRequest(), MetadataResponse).brokers
    else:
        assert client.receive_frame() is None


def test_requests_sent_along_with_the_token_are_answered_after_it(client: RawClient) -> None:
    client.call(keys.SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeResponse)
    token = SaslAuthenticateRequest(auth_bytes=f"\0{ADMIN}\0{PASSWORD}".encode())
    frames = frame_of(keys.SASL_AUTHENTICATE, 2, token, 7) + frame_of(keys.METADATA, 1, MetadataRequest(), 8)
    client.socket.sendall(frames)
    assert client.receive(keys.SASL_AUTHENTICATE, 2, SaslAuthenticateResponse)[0] == 7
    assert client.receive(keys.METADATA, 1, MetadataResponse)[0] == 8


def test_users_are_made_changed_and_removed(gateway: RunningGateway) -> None:
    admin = AdminClient(confluent_options(gateway.bootstrap))
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 5000)
    admin.alter_user_scram_credentials([UserScramCredentialUpsertion("carl", info, b"first")])["carl"].result(TIMEOUT_S)
    described = admin.describe_user_scram_credentials(["carl"])
    assert isinstance(described, dict)
    found = described["carl"].result(TIMEOUT_S).scram_credential_infos
    assert [(one.mechanism, one.iterations) for one in found] == [(ScramMechanism.SCRAM_SHA_256, 5000)]
    assert is_let_in(gateway, "carl", "first")
    admin.alter_user_scram_credentials([UserScramCredentialUpsertion("carl", info, b"second")])["carl"].result(TIMEOUT_S)
    gateway.restart()
    assert not is_let_in(gateway, "carl", "first")
    assert is_let_in(gateway, "carl", "second")
    removal = UserScramCredentialDeletion("carl", ScramMechanism.SCRAM_SHA_256)
    admin.alter_user_scram_credentials([removal])["carl"].result(TIMEOUT_S)
    assert not is_let_in(gateway, "carl", "second")


def is_let_in(gateway: RunningGateway, user: str, password: str) -> bool:
    with RawClient(gateway.port) as client:
        return authenticate(client, user, password).error_code == errors.NONE


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (AlterUserScramCredentialsRequest(deletions=[ScramCredentialDeletion(name="x", mechanism=1)]), errors.RESOURCE_NOT_FOUND),
        (
            AlterUserScramCredentialsRequest(
                upsertions=[ScramCredentialUpsertion(name="x", mechanism=9, iterations=4096, salt=b"s", salted_password=b"p")]
            ),
            errors.UNSUPPORTED_SASL_MECHANISM,
        ),
        (
            AlterUserScramCredentialsRequest(
                upsertions=[ScramCredentialUpsertion(name="x", mechanism=1, iterations=10, salt=b"s", salted_password=b"p")]
            ),
            errors.UNACCEPTABLE_CREDENTIAL,
        ),
        (
            AlterUserScramCredentialsRequest(
                upsertions=[ScramCredentialUpsertion(name=ADMIN, mechanism=1, iterations=4096, salt=b"s", salted_password=b"p")]
            ),
            errors.UNACCEPTABLE_CREDENTIAL,
        ),
        (
            AlterUserScramCredentialsRequest(
                deletions=[ScramCredentialDeletion(name="x", mechanism=1)],
                upsertions=[ScramCredentialUpsertion(name="x", mechanism=1, iterations=4096, salt=b"s", salted_password=b"p")],
            ),
            errors.DUPLICATE_RESOURCE,
        ),
    ],
    ids=["unknown", "mechanism", "weak", "administrator", "twice"],
)
def test_a_credential_that_cannot_be_had_is_refused(
    client: RawClient, request_: AlterUserScramCredentialsRequest, code: int
) -> None:
    authenticate(client)
    response = client.call(keys.ALTER_USER_SCRAM_CREDENTIALS, 0, request_, AlterUserScramCredentialsResponse)
    assert [one.error_code for one in response.results] == [code]


def test_users_who_are_not_there_or_named_twice_are_told_apart(client: RawClient) -> None:
    authenticate(client)
    users = [UserName(name=name) for name in ("gone", "twice", "twice")]
    response = client.call(
        keys.DESCRIBE_USER_SCRAM_CREDENTIALS,
        0,
        DescribeUserScramCredentialsRequest(users=users),
        DescribeUserScramCredentialsResponse,
    )
    codes = {one.user: one.error_code for one in response.results}
    assert codes == {"gone": errors.RESOURCE_NOT_FOUND, "twice": errors.DUPLICATE_RESOURCE}


def test_without_security_nobody_needs_to_say_who_they_are(tmp_path_factory: pytest.TempPathFactory) -> None:
    with RunningGateway(tmp_path_factory.mktemp("open")) as gateway, RawClient(gateway.port) as client:
        handshake = client.call(keys.SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeResponse)
        assert handshake.error_code == errors.ILLEGAL_SASL_STATE
        token = SaslAuthenticateRequest(auth_bytes=b"x")
        response = client.call(keys.SASL_AUTHENTICATE, 2, token, SaslAuthenticateResponse)
        assert response.error_code == errors.ILLEGAL_SASL_STATE
        assert client.call(keys.METADATA, 1, MetadataRequest(), MetadataResponse).brokers


@pytest.mark.parametrize("use_uvloop", [True, False], ids=["uvloop", "asyncio"])
def test_a_client_of_tls_that_reads_nothing_does_not_hold_up_the_stop(
    tmp_path_factory: pytest.TempPathFactory, caplog: pytest.LogCaptureFixture, use_uvloop: bool
) -> None:
    running = RunningGateway(tmp_path_factory.mktemp("idle"), tls=server_tls(), use_uvloop=use_uvloop)
    with ExitStack() as clients, running as gateway:
        plain = clients.enter_context(socket.create_connection(("127.0.0.1", gateway.port), 20))
        clients.enter_context(client_tls().wrap_socket(plain, server_hostname="localhost"))
    assert "not answered in time" not in caplog.text
