"""The jars of Spark's own Kafka connector, fetched by Maven on first use and kept in bench/results.

Not every repository has the newest release; the newest that it has is taken, and the table says which.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from bench.kafka_peer.brokers import RESULTS

_ARTIFACTS = {
    "org.apache.spark:spark-sql-kafka-0-10_2.13": ("4.3.0", "4.2.0"),
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13": ("4.3.0", "4.2.0", "4.0.0"),
    "org.apache.kafka:kafka-clients": ("3.9.2", "3.9.1"),
    "org.apache.commons:commons-pool2": ("2.13.1", "2.12.1"),
}


def connector_jars() -> list[Path]:
    """The connector and what it needs beyond Spark."""
    home = RESULTS / "spark-kafka-connector"
    if shutil.which("mvn") is None:
        raise RuntimeError("mvn is needed to fetch Spark's Kafka connector; install it (Debian: maven)")
    return [_jar(home, artifact, versions) for artifact, versions in _ARTIFACTS.items()]


def connector_version() -> str:
    """Which release of the connector was found."""
    return connector_jars()[0].stem.rsplit("-", 1)[1]


def _jar(home: Path, artifact: str, versions: tuple[str, ...]) -> Path:
    name = artifact.split(":")[1]
    failure = ""
    for version in versions:
        jar = home / f"{name}-{version}.jar"
        if not jar.exists():
            copy = ["mvn", "-B", "-q", "dependency:copy", f"-Dartifact={artifact}:{version}", f"-DoutputDirectory={home}"]
            failure = subprocess.run(copy, capture_output=True, text=True, check=False).stdout[-500:]
        if jar.exists():
            return jar
    raise RuntimeError(f"no release of {artifact} could be fetched: {failure}")
