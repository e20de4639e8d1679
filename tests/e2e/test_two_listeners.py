"""One node with two listeners for Kafka clients, one without encryption and one with TLS."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka import Consumer, Message, Producer

from tests.e2e.running_node import running_node

CERTIFICATES = Path(__file__).parent / "kafka" / "tls"
TIMEOUT_S = 20


def test_what_is_written_without_encryption_is_read_with_it(tmp_path: Path) -> None:
    tls = ["--tls-cert", str(CERTIFICATES / "cert.pem"), "--tls-key", str(CERTIFICATES / "key.pem"), "--kafka-tls-port", "0"]
    with running_node(tmp_path / "log", ["--data-dir", str(tmp_path / "data"), *tls]) as node:
        producer = Producer({"bootstrap.servers": node.bootstrap})
        producer.produce("shared", b"a message")
        assert producer.flush(TIMEOUT_S) == 0
        message = _first_message(f"127.0.0.1:{node.ready['listeners']['kafka_tls']['port']}")
        assert message is not None
        assert message.value() == b"a message"


def _first_message(bootstrap: str) -> Message | None:
    settings = {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SSL",
        "ssl.ca.location": str(CERTIFICATES / "cert.pem"),
        "group.id": "readers",
        "auto.offset.reset": "earliest",
    }
    consumer = Consumer(settings)
    try:
        consumer.subscribe(["shared"])
        return consumer.poll(TIMEOUT_S)
    finally:
        consumer.close()
