"""Every kind of pipeline on a broker that demands TLS and a sign-in, with the password outside of the file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.kafka.client import BrokerRefusedError
from penstock.spark.pipelines.spec import Origin, PipelineSpec
from penstock.spark.pipelines.spec_file import Declaration
from penstock.spark.pipelines.spec_reading import check
from penstock.spark.pipelines.validation import check_broker
from tests.e2e.kafka.running_gateway import RunningGateway
from tests.e2e.kafka.secured import ADMIN, CERTIFICATE, ENCRYPTED, PASSWORD, secured, server_tls
from tests.spark.pipelines.table_pipelines import again, click, ids, run
from tests.spark.reads import read

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
JSON = {"format": "json", "schema": "id BIGINT, page STRING"}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """A gateway with SASL and TLS."""
    with RunningGateway(tmp_path_factory.mktemp("secured"), broker_options=secured(), tls=server_tls()) as running:
        yield running


def declare(gateway: RunningGateway, directory: Path, kind: str, *, password: str = PASSWORD, **fields: Any) -> PipelineSpec:
    """A pipeline whose file has neither the user nor the password."""
    (directory / "password").write_text(f"{password}\n")
    options = {
        "kafka.security.protocol": ENCRYPTED,
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": 'ScramLoginModule required username="${WHO}" password="${file:password}";',
        "kafka.ssl.truststore.location": str(CERTIFICATE),
        "kafka.ssl.truststore.type": "PEM",
        "kafka.compression.type": "lz4",
        "kafka.fetch.max.bytes": "1000000",
    }
    given = {"pipeline": f"s-{kind}", "kind": kind, "brokers": gateway.bootstrap, "options": options, **fields}
    return again(check(Declaration(given, Origin(str(directory / "p.yml"), {}))))


@pytest.fixture(autouse=True)
def user(monkeypatch: pytest.MonkeyPatch) -> None:
    """The user of the pipelines."""
    monkeypatch.setenv("WHO", ADMIN)


def values(gateway: RunningGateway, topic: str) -> list[Any]:
    """What a topic holds."""
    security: dict[str, Any] = {
        "kafka.security.protocol": ENCRYPTED,
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.username": ADMIN,
        "kafka.sasl.password": PASSWORD,
        "kafka.ssl.truststore.location": CERTIFICATE,
        "kafka.ssl.truststore.type": "PEM",
        "kafka.isolation.level": "read_committed",
    }
    return [json.loads(row["value"]) for row in read(gateway.bootstrap, None, subscribe=topic, **security)]


def test_every_kind_of_pipeline_runs_with_sasl_and_tls(spark: SparkSession, gateway: RunningGateway, tmp_path: Path) -> None:
    lake = {"table": {"format": "delta", "location": "lake"}}
    (tmp_path / "in.json").write_bytes(b"\n".join(click(number) for number in range(20)))
    files = {"path": "in.json", "format": "json"}
    load = declare(gateway, tmp_path, "load", source={"files": files}, target={"topic": "clicks", "partitions": 2})
    check_broker(load)
    assert PASSWORD not in repr(load)
    run(spark, load)
    source = {"topics": ["clicks"], "value": JSON}
    few = {"sql": "SELECT id, page FROM clicks WHERE id < 10"}
    run(spark, declare(gateway, tmp_path, "transform", source=source, transform=few, target={"topic": "few"}))
    counting = {"sql": "SELECT page, count(*) AS n FROM clicks GROUP BY page", "output_mode": "update"}
    counts = declare(
        gateway, tmp_path, "transform", source=source, transform=counting, target={"topic": "counts"}, trigger="once"
    )
    run(spark, replace(counts, name="s-counts"))
    run(spark, declare(gateway, tmp_path, "replay", source={"topics": ["few"]}, target={"topic": "few-again"}))
    run(spark, declare(gateway, tmp_path, "export", source=source, target=lake))
    run(spark, declare(gateway, tmp_path, "audit", source=source, target=lake))
    last = {"table": {"format": "delta", "location": "last"}}
    run(spark, declare(gateway, tmp_path, "compact", source=source, target=last))
    assert ids("delta", tmp_path / "lake") == list(range(20))
    assert sorted(row["id"] for row in values(gateway, "few-again")) == list(range(10))
    assert sum(row["n"] for row in values(gateway, "counts")) == 20
    assert len(values(gateway, "s-compact.dead")) == 20  # none has a key


def test_a_broker_that_refuses_is_told_in_one_sentence(gateway: RunningGateway, tmp_path: Path) -> None:
    wrong = declare(gateway, tmp_path, "replay", source={"topics": ["few"]}, target={"topic": "other"}, password="guessed")
    with pytest.raises(BrokerRefusedError, match="does not let 'admin' in") as refused:
        check_broker(wrong)
    assert "guessed" not in str(refused.value)
