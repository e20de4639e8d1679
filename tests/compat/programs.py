"""Programs in other languages, each using Penstock through a client of its language: topics, messages in every compression,
groups, transactions. A program prints one line a step: "ok NAME" or "failed NAME: why"."""

from __future__ import annotations

import secrets
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench.kafka_peer.brokers import java
from tests.compat.kafka_tools import check_java
from tests.compat.outcome import Outcome
from tests.compat.preparation import NotPreparedError
from tests.compat.suites import HERE

CLIENTS = HERE / "clients"
PROGRAM_TIMEOUT_S = 300
STEPS = ("topics", "messages", "compression", "group", "transactions", "exactly_once")


@dataclass(frozen=True, slots=True)
class Program:
    """A program: how it is made ready in a folder of its own, and the command that runs it there."""

    name: str
    build: Callable[[Path], None]
    command: Callable[[Path], list[str]]
    steps: tuple[str, ...] = STEPS
    timeout_s: float = PROGRAM_TIMEOUT_S

    def prepare(self, home: Path) -> None:
        """Make it ready; NotPreparedError if its language is not on this machine."""
        home.mkdir(parents=True, exist_ok=True)
        self.build(home)

    def run(self, home: Path, address: str) -> dict[str, Outcome]:
        """What became of each step, with the broker or the registry at an address. The names it uses are new in every run."""
        prefix = f"{self.name}-{secrets.token_hex(4)}"
        command = [*self.command(home), address, prefix]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=self.timeout_s, cwd=home)
            printed, problem = done.stdout, f"the program ended with {done.returncode}: {done.stderr.strip()[-500:]}"
        except subprocess.TimeoutExpired:
            printed, problem = "", f"the program was not done after {self.timeout_s} s"
        outcomes = dict.fromkeys(self.steps, Outcome("failed", problem))
        for line in printed.splitlines():
            verdict, _, rest = line.partition(" ")
            step, _, reason = rest.partition(": ")
            if step in outcomes:
                outcomes[step] = Outcome("passed" if verdict == "ok" else "failed", reason)
        return outcomes


def _build_java(_home: Path) -> None:
    check_java()


def _java_command(_home: Path) -> list[str]:
    return [*java("-XX:TieredStopAtLevel=1"), str(CLIENTS / "java" / "Client.java")]


def _build_go(folder: str) -> Callable[[Path], None]:
    def build(home: Path) -> None:
        _need("go")
        run_tool(["go", "build", "-o", str(home / "client"), "."], CLIENTS / folder)

    return build


def _go_command(home: Path) -> list[str]:
    return [str(home / "client")]


def _build_kafkajs(home: Path) -> None:
    _need("node")
    _need("npm")
    for name in ("client.js", "package.json"):
        shutil.copy(CLIENTS / "kafkajs" / name, home / name)
    if not (home / "node_modules").exists():
        run_tool(["npm", "install", "--silent", "--no-audit", "--no-fund"], home)


def _node_command(home: Path) -> list[str]:
    return ["node", str(home / "client.js")]


# Confluent's jars are not on Maven Central; its client is, inside a format of Flink, under package names of Flink's.
REGISTRY_CLIENT = "org.apache.flink:flink-sql-avro-confluent-registry:2.2.0"


def _build_java_registry(home: Path) -> None:
    check_java()
    fetch_jar(home, REGISTRY_CLIENT)


def _java_registry_command(home: Path) -> list[str]:
    *start, libraries = java("-XX:TieredStopAtLevel=1")
    return [*start, f"{libraries}:{jar_path(home, REGISTRY_CLIENT)}", str(CLIENTS / "java_registry" / "Registry.java")]


def fetch_jar(home: Path, artifact: str) -> None:
    """Fetch a jar by its group, name and version, unless it is there."""
    if not jar_path(home, artifact).exists():
        _need("mvn")
        run_tool(["mvn", "-B", "-q", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={home}"], home)


def jar_path(home: Path, artifact: str) -> Path:
    """Where it is kept."""
    _, name, version = artifact.split(":")
    return home / f"{name}-{version}.jar"


def _need(tool: str) -> None:
    if shutil.which(tool) is None:
        raise NotPreparedError(f"{tool} is not on this machine")


def run_tool(command: list[str], folder: Path) -> None:
    """Run a tool that prepares a program; NotPreparedError with its last words if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    if done.returncode != 0:
        raise NotPreparedError(f"{' '.join(command[:2])} failed: {(done.stderr or done.stdout).strip()[-1000:]}")


REGISTRY_STEPS = ("schemas", "kinds", "references", "compatibility", "modes", "deletes", "contexts", "serde", "errors")
REGISTRY_PROGRAMS = (
    Program("franz-go-sr", _build_go("franz_go_sr"), _go_command, REGISTRY_STEPS),
    Program(
        "confluent-java-registry",
        _build_java_registry,
        _java_registry_command,
        tuple(step for step in REGISTRY_STEPS if step != "serde"),  # the jar has no serializers
    ),
)

PROGRAMS = (
    Program("java-client", _build_java, _java_command, (*STEPS, "new_group")),
    Program("franz-go", _build_go("franz_go"), _go_command),
    Program("sarama", _build_go("sarama"), _go_command),
    Program("kafka-go", _build_go("kafka_go"), _go_command, ("topics", "messages", "compression", "group")),
    Program("kafkajs", _build_kafkajs, _node_command),
)
