"""Reading where clients must say who they are: by every mechanism, over TLS, and without the right to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest

from penstock.broker import Credential, Mechanism
from penstock.kafka.client import BrokerRefusedError, BrokerUnreachableError
from penstock.kafka.protocol import errors, private_keys
from penstock.kafka.protocol.private_leases import LeasedPartition, LeasedTopic, TakeLeaseRequest, TakeLeaseResponse
from penstock.kafka.protocol.private_reads import FindPiecesRequest, FindPiecesResponse
from penstock.spark.errors import AccessDeniedError
from tests.e2e.kafka.raw_client import RawClient
from tests.e2e.kafka.running_gateway import RunningGateway
from tests.e2e.kafka.secured import ADMIN, CERTIFICATE, PASSWORD, authenticate, confluent_options, secured, server_tls
from tests.spark.reads import read, values

TOPIC = "secret"


@pytest.fixture(scope="module", params=[False, True], ids=["plain text", "TLS"])
def gateway(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """A gateway with security on, and one topic with one message."""
    directory = tmp_path_factory.mktemp("secured")
    with RunningGateway(directory, broker_options=secured(), tls=server_tls() if request.param else None) as running:
        running.create_topic(TOPIC)
        protocol = "SASL_SSL" if request.param else "SASL_PLAINTEXT"
        producer = confluent_kafka.Producer(confluent_options(running.bootstrap, protocol))
        producer.produce(TOPIC, b"told")
        assert producer.flush(20) == 0
        yield running


@pytest.fixture
def is_encrypted(request: pytest.FixtureRequest, gateway: RunningGateway) -> bool:
    """Whether this is the gateway with TLS."""
    return bool(request.node.callspec.params["gateway"])


def sign_in(mechanism: str, is_encrypted: bool, user: str = ADMIN, password: str = PASSWORD) -> dict[str, Any]:
    found = {
        "kafka_security_protocol": "SASL_SSL" if is_encrypted else "SASL_PLAINTEXT",
        "kafka_sasl_mechanism": mechanism,
        "kafka_sasl_jaas_config": f'LoginModule required username="{user}" password="{password}";',
    }
    tls = {"kafka_ssl_truststore_location": CERTIFICATE, "kafka_ssl_truststore_type": "PEM"}
    return {**found, **(tls if is_encrypted else {}), "subscribe": TOPIC, "kafka_default_api_timeout_ms": 20_000}


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_every_mechanism_is_spoken(gateway: RunningGateway, is_encrypted: bool, mechanism: str) -> None:
    assert values(read(gateway.bootstrap, **sign_in(mechanism, is_encrypted))) == [b"told"]


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_a_wrong_password_is_told(gateway: RunningGateway, is_encrypted: bool, mechanism: str) -> None:
    with pytest.raises(BrokerRefusedError, match="does not let 'admin' in"):
        read(gateway.bootstrap, **sign_in(mechanism, is_encrypted, password="guessed"))


def test_a_sign_in_that_is_missing_is_told(gateway: RunningGateway, is_encrypted: bool) -> None:
    told = "if it requires TLS, set" if is_encrypted else "if it requires authentication, set kafka.sasl.jaas.config"
    with pytest.raises(BrokerUnreachableError, match=told):
        read(gateway.bootstrap, subscribe=TOPIC, kafka_default_api_timeout_ms=500)


def test_a_certificate_that_is_not_trusted_ends_it(gateway: RunningGateway, is_encrypted: bool) -> None:
    options = {name: value for name, value in sign_in("PLAIN", True).items() if "truststore" not in name}
    options["kafka_default_api_timeout_ms"] = 1000
    with pytest.raises(BrokerUnreachableError, match="cannot connect" if is_encrypted else "cannot connect|broke"):
        read(gateway.bootstrap, **options)


def test_who_may_not_read_is_told_neither_rows_nor_files(gateway: RunningGateway, is_encrypted: bool) -> None:
    credential = Credential.of_password(Mechanism.SCRAM_SHA_256, 4096, b"salt", "bob")
    gateway.run(gateway.broker.users.change([("bob", credential)]))
    with pytest.raises(AccessDeniedError, match=r"user 'bob' may not read topic 'secret' .*`penstock access allow bob read"):
        read(gateway.bootstrap, **sign_in("SCRAM-SHA-256", is_encrypted, "bob", "bob"))
    if not is_encrypted:
        topic_id = gateway.broker.catalog.topic(TOPIC).id.bytes
        with RawClient(gateway.port) as client:
            authenticate(client, "bob", "bob")
            request = FindPiecesRequest(topic_id=topic_id, bytes_max=1000)
            answer = client.call(private_keys.FIND_PIECES, 0, request, FindPiecesResponse)
            leased = [LeasedTopic(topic_id=topic_id, partitions=[LeasedPartition()])]
            lease = TakeLeaseRequest(lease_id=bytes(16), owner="bob", duration_ms=1000, topics=leased)
            refusal = client.call(private_keys.TAKE_LEASE, 0, lease, TakeLeaseResponse)
        assert answer == FindPiecesResponse(error_code=errors.TOPIC_AUTHORIZATION_FAILED)
        assert refusal.error_code == errors.TOPIC_AUTHORIZATION_FAILED
        assert all(lease.owner != "bob" for lease in gateway.broker.leases)
