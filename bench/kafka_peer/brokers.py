"""Penstock and Kafka as processes: how they are started, asked for their memory and processor time, and stopped.

Kafka comes from its published artifacts through Maven, which with Java is all that is needed; they are kept between runs in
bench/results/kafka-VERSION.
"""

from __future__ import annotations

import json
import platform
import shutil
import signal
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from contextlib import ExitStack
from importlib import metadata
from pathlib import Path

from bench.process_cpu import tree_cpu_s

KAFKA_VERSION = "4.1.0"
# What bin/kafka-server-start.sh and bin/kafka-run-class.sh of Kafka's archive give to Java when nothing is set.
KAFKA_JAVA_OPTIONS = (
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
    "-Djava.awt.headless=true",
    "-Dcom.sun.management.jmxremote=true",
    "-Dcom.sun.management.jmxremote.authenticate=false",
    "-Dcom.sun.management.jmxremote.ssl=false",
)
ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "bench" / "results"
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


class NotInstalledError(Exception):
    """A peer cannot be run on this machine; the message says what is missing."""


class BrokerProcess(ABC):
    """A broker in a process of its own, on a free port and a fresh directory."""

    name: str
    wire = "kafka"  # the protocol that raw load speaks to it
    has_goals = False  # whether Penstock is to reach something beside it

    def __init__(self, directory: Path, *, synced: bool) -> None:
        self._directory = directory
        self._synced = synced
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """Where clients connect."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> float:
        """Start it; the seconds until it accepts connections."""
        self._directory.mkdir(parents=True)
        self._prepare()
        return self.start_again()

    def start_again(self) -> float:
        """Start it on the data that it has; the seconds until it accepts connections."""
        log = (self._directory.parent / f"{self._directory.name}.log").open("ab")
        started = time.perf_counter()
        self._process = subprocess.Popen(self._command(), stdout=log, stderr=log)
        log.close()  # it is the process's own by now
        while not self._is_listening():
            if self._process.poll() is not None or time.perf_counter() - started > START_SECONDS_MAX:
                raise RuntimeError(f"{self.name} does not start; see {log.name}")
            time.sleep(0.005)
        return time.perf_counter() - started

    def kill(self) -> None:
        """kill -9."""
        assert self._process is not None, "start it first"
        self._process.kill()
        self._process.wait()

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
        status = Path(f"/proc/{self.pid}/status").read_text(encoding="ascii")
        return next(int(line.split()[1]) / 1e3 for line in status.splitlines() if line.startswith("VmRSS"))

    def cpu_seconds(self) -> float:
        """The processor time that it and its children have used."""
        return tree_cpu_s(self.pid)

    def create_topic(self, topic: str, partitions: int) -> float:
        """Create a topic; the seconds it took."""
        return load("create", self, topic=topic, partitions=partitions)["s"]

    def produce_first(self) -> None:
        """Wait until one message is acknowledged."""
        load("first", self, topic="first")

    @property
    def pid(self) -> int:
        """The id of its process."""
        assert self._process is not None, "start it first"
        return self._process.pid

    def _is_listening(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    @classmethod
    @abstractmethod
    def version(cls) -> str:
        """Its name and version; what is missing on this machine to run it raises NotInstalledError."""

    @abstractmethod
    def _prepare(self) -> None:
        """Lay out the directory."""

    @abstractmethod
    def _command(self) -> list[str]:
        """The command line."""


class PenstockProcess(BrokerProcess):
    """`penstock up`."""

    name = "penstock"

    def __init__(self, directory: Path, *, synced: bool, workers: int = 1) -> None:
        super().__init__(directory, synced=synced)
        self._workers = workers
        if workers > 1:
            self.port = _free_row(workers)

    @classmethod
    def version(cls) -> str:
        """The commit that is checked out, or the version that is installed."""
        commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
        name = commit.stdout.strip() or metadata.version("penstock")
        return f"Penstock {name}, Python {platform.python_version()}"

    def _prepare(self) -> None:
        pass

    def _command(self) -> list[str]:
        durability = "fsync" if self._synced else "os"
        options = ["--data-dir", str(self._directory / "data"), "--kafka-port", str(self.port), "--durability", durability]
        # The waits that are shortened for Kafka, too.
        options += ["--http-port", "none", "--compaction-interval-s", "0.1", "--group-initial-rebalance-delay-ms", "0"]
        if self._workers > 1:
            options += ["--workers", str(self._workers)]
        return [sys.executable, "-m", "penstock.cli.main", "up", *options]


class FloorProcess(BrokerProcess):
    """What plain Python takes for a produce at least: see floor_broker.py. `synced` syncs on the event loop."""

    name = "floor"

    @classmethod
    def version(cls) -> str:
        """It has none of its own."""
        return f"The floor: a broker that only writes, in plain Python {platform.python_version()}"

    def create_topic(self, topic: str, partitions: int) -> float:
        """It has every topic."""
        return 0.0

    def _prepare(self) -> None:
        pass

    def _command(self) -> list[str]:
        sync = "inline" if self._synced else "none"
        return [sys.executable, "-m", "bench.kafka_peer.floor_broker", str(self.port), sync, str(self._directory / "log")]


class KafkaProcess(BrokerProcess):
    """Kafka in KRaft mode, broker and controller in one. `synced` flushes every message before it is acknowledged."""

    name = "kafka"
    has_goals = True

    @classmethod
    def version(cls) -> str:
        """Kafka and its Java."""
        kafka_libraries()
        first_line = subprocess.run(["java", "-version"], capture_output=True, text=True, check=True).stderr.splitlines()[0]
        return f"Kafka {KAFKA_VERSION}, Java {first_line.split()[2].strip(chr(34))}"

    def _prepare(self) -> None:
        settings = self._settings()
        if self._synced:
            settings["log.flush.interval.messages"] = "1"
        lines = "".join(f"{key}={value}\n" for key, value in settings.items())
        (self._directory / "server.properties").write_text(lines, encoding="ascii")
        subprocess.run(
            [*java(), "kafka.tools.StorageTool", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qg", "-c", str(self._properties())],
            check=True,
            capture_output=True,
        )

    def _settings(self) -> dict[str, str]:
        controller = free_port()
        return {
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

    def _command(self) -> list[str]:
        gc_log = f"-Xlog:gc*:file={self._directory}/kafkaServer-gc.log:time,tags:filecount=10,filesize=100M"
        return [*java(*KAFKA_JAVA_OPTIONS, gc_log), "kafka.Kafka", str(self._properties())]

    def _properties(self) -> Path:
        return self._directory / "server.properties"


def load(task: str, broker: BrokerProcess, **arguments: object) -> dict[str, float]:
    """Run one task of the client against a broker."""
    command = [sys.executable, "-m", "bench.kafka_peer.client", task, json.dumps({"address": broker.address, **arguments})]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    if done.returncode != 0:
        raise RuntimeError(f"{task} on {broker.name} failed: {done.stderr[-2000:]}")
    result: dict[str, float] = json.loads(done.stdout)
    return result


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
                raise NotInstalledError(f"{tool} is needed to run Kafka beside Penstock; install it (Debian: default-jdk, maven)")
        home.mkdir(parents=True, exist_ok=True)
        (home / "pom.xml").write_text(_POM, encoding="ascii")
        copy = ["mvn", "-q", "-f", str(home / "pom.xml"), "dependency:copy-dependencies", f"-DoutputDirectory={libraries}"]
        subprocess.run(copy, check=True)
    return libraries


def free_port() -> int:
    """A port that nothing listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def _free_row(count: int) -> int:
    """The first of so many free ports in a row, which are not among those that others are given by chance."""
    for first in range(20_000, 30_000, count):
        with ExitStack() as sockets:
            try:
                for port in range(first, first + count):
                    sockets.enter_context(socket.create_server(("127.0.0.1", port)))
            except OSError:
                continue
            return first
    raise RuntimeError("there are no free ports in a row")
