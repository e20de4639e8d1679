"""Gateways with security on, and clients that say who they are."""

from __future__ import annotations

import ssl
from pathlib import Path
from random import Random
from typing import Any, Final

from penstock.broker import BrokerOptions, Security
from penstock.kafka.protocol import keys
from penstock.kafka.protocol.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from tests.e2e.kafka.raw_client import RawClient

ADMIN, PASSWORD = "admin", "open, sesame=1"
CERTIFICATE = Path(__file__).parent / "tls" / "cert.pem"
KEY = CERTIFICATE.with_name("key.pem")
PLAINTEXT: Final = "SASL_PLAINTEXT"
ENCRYPTED: Final = "SASL_SSL"


def secured(*, allow_without_rule: bool = False) -> BrokerOptions:
    """A broker to which clients must say who they are."""
    return BrokerOptions(security=Security(ADMIN, PASSWORD, Random(7), allow_without_rule))


def server_tls() -> ssl.SSLContext:
    """The listener's side of TLS."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(CERTIFICATE, KEY)
    return context


def client_tls() -> ssl.SSLContext:
    """The client's side, which trusts that certificate."""
    return ssl.create_default_context(cafile=str(CERTIFICATE))


def confluent_options(
    bootstrap: str, protocol: str = PLAINTEXT, mechanism: str = "SCRAM-SHA-256", user: str = ADMIN, password: str = PASSWORD
) -> dict[str, Any]:
    """What confluent-kafka must be told."""
    return {
        "bootstrap.servers": bootstrap,
        "security.protocol": protocol,
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
        "ssl.ca.location": str(CERTIFICATE),
    }


def python_options(
    bootstrap: str, protocol: str = PLAINTEXT, mechanism: str = "SCRAM-SHA-256", user: str = ADMIN, password: str = PASSWORD
) -> dict[str, Any]:
    """What kafka-python and aiokafka must be told."""
    return {
        "bootstrap_servers": bootstrap,
        "security_protocol": protocol,
        "sasl_mechanism": mechanism,
        "sasl_plain_username": user,
        "sasl_plain_password": password,
        "ssl_context": client_tls() if protocol == ENCRYPTED else None,
    }


def authenticate(client: RawClient, user: str = ADMIN, password: str = PASSWORD) -> SaslAuthenticateResponse:
    """Say by PLAIN who a raw client is."""
    handshake = client.call(keys.SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeResponse)
    assert handshake.error_code == 0
    token = f"\0{user}\0{password}".encode()
    return client.call(keys.SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(auth_bytes=token), SaslAuthenticateResponse)
