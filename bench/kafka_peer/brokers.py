"""The two brokers as processes: how they are started, asked for their memory and processor time, and ended.

Kafka comes from its published artifacts through Maven, which with Java is all that is needed; they are kept between runs in
bench/results/kafka-VERSION.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from pathlib import Path

KAFKA_VERSION = "4.1.0"
RESULTS = Path(__file__).resolve().parents[1] / "results"
START_SECONDS_MAX = 60

_POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>penstock</groupId><artifactId>kafka-peer</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{KAFKA_VERSION}</version></dependency>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>{KAFKA_VERSION}</version></dependency>
  </dependencies>
</project>
"""


class BrokerProcess(ABC):
    """A broker in a process of its own, on a free port and a fresh directory."""

    name: str

    def __init__(self, directory: Path, *, synced: bool) -> None:
        self._directory = directory
        self._synced = synced
        self.port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """Where clients connect."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> float:
        """Start it; the seconds until it accepts connections."""
        self._directory.mkdir(parents=True)
        self._prepare()
        log = (self._directory.parent / f"{self._directory.name}.log").open("wb")
        started = time.perf_counter()
        self._process = subprocess.Popen(self._command(), stdout=log, stderr=log)
        log.close()  # it is the process's own by now
        while not self._is_listening():
            if self._process.poll() is not None or time.perf_counter() - started > START_SECONDS_MAX:
                raise RuntimeError(f"{self.name} does not start; see {log.name}")
            time.sleep(0.005)
        return time.perf_counter() - started

    def stop(self) -> None:
        """End it and remove its data."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        shutil.rmtree(self._directory, ignore_errors=True)

    def memory_mb(self) -> float:
        """Its resident memory."""
        status = Path(f"/proc/{self._pid()}/status").read_text(encoding="ascii")
        return next(int(line.split()[1]) / 1e3 for line in status.splitlines() if line.startswith("VmRSS"))

    def cpu_seconds(self) -> float:
        """The processor time it has used."""
        fields = Path(f"/proc/{self._pid()}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _pid(self) -> int:
        assert self._process is not None, "start it first"
        return self._process.pid

    def _is_listening(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    @abstractmethod
    def _prepare(self) -> None:
        """Lay out the directory."""

    @abstractmethod
    def _command(self) -> list[str]:
        """The command line."""


class PenstockProcess(BrokerProcess):
    """`penstock up`."""

    name = "penstock"

    def _prepare(self) -> None:
        pass

    def _command(self) -> list[str]:
        durability = "fsync" if self._synced else "os"
        options = ["--data-dir", str(self._directory / "data"), "--kafka-port", str(self.port), "--durability", durability]
        options += ["--http-port", "none", "--compaction-interval-s", "0.1"]  # as log.cleaner.backoff.ms is for Kafka
        return [sys.executable, "-m", "penstock.cli.main", "up", *options]


class KafkaProcess(BrokerProcess):
    """Kafka in KRaft mode, broker and controller in one. `synced` flushes every message before it is acknowledged."""

    name = "kafka"

    def _prepare(self) -> None:
        controller = _free_port()
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://{self.address}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self._directory / "data"),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            # Waits that would be measured instead of work.
            "group.initial.rebalance.delay.ms": "0",
            "log.cleaner.backoff.ms": "100",
        }
        if self._synced:
            settings["log.flush.interval.messages"] = "1"
        lines = "".join(f"{key}={value}\n" for key, value in settings.items())
        (self._directory / "server.properties").write_text(lines, encoding="ascii")
        subprocess.run(
            [*java(), "kafka.tools.StorageTool", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qg", "-c", str(self._properties())],
            check=True,
            capture_output=True,
        )

    def _command(self) -> list[str]:
        return [*java("-Xmx1G", "-Xms1G"), "kafka.Kafka", str(self._properties())]

    def _properties(self) -> Path:
        return self._directory / "server.properties"


def java(*options: str) -> list[str]:
    """The start of a command line that runs one of Kafka's classes."""
    return ["java", *options, "-cp", f"{kafka_libraries()}/*"]


def kafka_libraries() -> Path:
    """Kafka's jars, fetched by Maven on first use."""
    home = RESULTS / f"kafka-{KAFKA_VERSION}"
    libraries = home / "libs"
    if not libraries.exists():
        for tool in ("java", "mvn"):
            if shutil.which(tool) is None:
                raise RuntimeError(f"{tool} is needed to run Kafka beside Penstock; install it (Debian: default-jdk, maven)")
        home.mkdir(parents=True, exist_ok=True)
        (home / "pom.xml").write_text(_POM, encoding="ascii")
        copy = ["mvn", "-q", "-f", str(home / "pom.xml"), "dependency:copy-dependencies", f"-DoutputDirectory={libraries}"]
        subprocess.run(copy, check=True)
    return libraries


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port
