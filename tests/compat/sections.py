"""What `make compat` consists of: the suites of clients, Kafka's own tools, and programs in other languages.

Every section brings its tests and a broker together and tells what became of each test. A test that fails is run once more on
the same broker; if it passes then, it is flaky.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol

from tests.compat import kafka_tools, malformed_schemas, programs, registry_tools, spark_programs
from tests.compat.outcome import Outcome
from tests.compat.preparation import prepare
from tests.compat.suite_run import CERTIFICATE, KEY, BrokerAddress, run_suite
from tests.compat.suites import CACHE, Suite, all_suites
from tests.e2e.cluster.running_cluster import running_cluster
from tests.e2e.running_node import running_node
from tests.ports import free_ports

MALFORMED_BAR = 2066
TOLD = 2  # the node of a cluster that clients are told


class Ran(NamedTuple):
    """What became of the tests of a section, and which of them needed a second try."""

    outcomes: dict[str, Outcome]
    flaky: set[str]


class Section(Protocol):
    """A part of the whole that has lists of its own."""

    @property
    def name(self) -> str: ...

    @property
    def bar(self) -> int:
        """How many tests must pass at least."""
        ...

    def prepare(self) -> None:
        """Fetch what is needed; NotPreparedError if it cannot be had."""
        ...

    def run(self, expression: str | None, nodes: int) -> Ran:
        """Run all tests, or those that match, against so many nodes."""
        ...


class SuiteSection:
    """The own tests of a client."""

    def __init__(self, suite: Suite) -> None:
        self._suite = suite
        self.name = suite.name
        self.bar = suite.bar

    def prepare(self) -> None:
        self._python = prepare(self._suite)

    def run(self, expression: str | None, nodes: int) -> Ran:
        suite = self._suite
        print(f"  see {(suite.home / 'pytest.log').relative_to(CACHE.parent)}", flush=True)
        (suite.home / "pytest.log").unlink(missing_ok=True)
        log = suite.home / "broker.log"
        with registry(log, nodes) if suite.is_of_registry else broker(log, suite.default_partitions, nodes) as address:
            outcomes = run_suite(suite, self._python, address, (), expression)
            failed = [name for name, outcome in outcomes.items() if outcome.verdict == "failed"]
            again = run_suite(suite, self._python, address, failed, None) if failed else {}
        return _merged(outcomes, again)


class ToolsSection:
    """Kafka's own command line tools."""

    name = "kafka-tools"
    bar = len(kafka_tools.CHECKS)

    def prepare(self) -> None:
        kafka_tools.check_java()

    def run(self, expression: str | None, nodes: int) -> Ran:
        names = [check.__name__ for check in kafka_tools.CHECKS if _matches(check.__name__, expression)]
        home = CACHE / self.name
        home.mkdir(parents=True, exist_ok=True)
        with broker(home / "broker.log", 1, nodes) as address:
            outcomes = kafka_tools.run_checks(address.bootstrap, home, names)
            failed = [name for name, outcome in outcomes.items() if outcome.verdict == "failed"]
            return _merged(outcomes, kafka_tools.run_checks(address.bootstrap, home, failed))


class RegistryToolsSection:
    """The calls that tools make to a schema registry."""

    name = "registry-tools"
    bar = len(registry_tools.CHECKS)

    def prepare(self) -> None:
        (CACHE / self.name).mkdir(parents=True, exist_ok=True)

    def run(self, expression: str | None, nodes: int) -> Ran:
        names = [check.__name__ for check in registry_tools.CHECKS if _matches(check.__name__, expression)]
        with registry(CACHE / self.name / "broker.log", nodes) as address:
            outcomes = registry_tools.run_checks(address.registry, names)
            failed = [name for name, outcome in outcomes.items() if outcome.verdict == "failed"]
            return _merged(outcomes, registry_tools.run_checks(address.registry, failed))


class MalformedSchemasSection:
    """Schemas of the three kinds' own tests, most of them malformed."""

    name = "malformed-schemas"
    bar = MALFORMED_BAR

    def prepare(self) -> None:
        malformed_schemas.prepare(CACHE / self.name)

    def run(self, expression: str | None, nodes: int) -> Ran:
        with registry(CACHE / self.name / "broker.log", nodes) as address:
            target = malformed_schemas.Registry(address.registry)
            chosen = [case for case in malformed_schemas.cases(CACHE / self.name) if _matches(case.name, expression)]
            return Ran({case.name: target.run(case) for case in chosen}, set())


class ProgramSection:
    """A program in another language that uses a client of that language, of the broker or of the schema registry."""

    def __init__(self, program: programs.Program, *, of_registry: bool = False) -> None:
        self._program = program
        self._of_registry = of_registry
        self.name = program.name
        self.bar = len(program.steps)

    def prepare(self) -> None:
        self._program.prepare(CACHE / self.name)

    def run(self, expression: str | None, nodes: int) -> Ran:
        log = CACHE / self.name / "broker.log"
        with registry(log, nodes) if self._of_registry else broker(log, 1, nodes) as address:
            where = address.registry if self._of_registry else address.bootstrap
            outcomes = self._program.run(CACHE / self.name, where)
            failed = any(outcome.verdict == "failed" for outcome in outcomes.values())
            ran = _merged(outcomes, self._program.run(CACHE / self.name, where) if failed else {})
        return Ran({name: one for name, one in ran.outcomes.items() if _matches(name, expression)}, ran.flaky)


def all_sections() -> dict[str, Section]:
    """Every section by name, in the order they are run."""
    found: list[Section] = [SuiteSection(suite) for suite in all_suites().values()]
    found.append(ToolsSection())
    found += (ProgramSection(program) for program in programs.PROGRAMS)
    found += (ProgramSection(program) for program in spark_programs.spark_programs())
    found.append(RegistryToolsSection())
    found.append(MalformedSchemasSection())
    found += (ProgramSection(program, of_registry=True) for program in programs.REGISTRY_PROGRAMS)
    return {section.name: section for section in found}


@contextmanager
def broker(log: Path, default_partitions: int, nodes: int) -> Iterator[BrokerAddress]:
    """A node with the settings that suites expect, on a scratch directory, or a cluster of them, of which clients are told the
    second; where it listens. Logs of a cluster lie beside the file."""
    options = ["--auto-create-topics", "true", "--allow-without-rule", "true", "--default-partitions", str(default_partitions)]
    options += ["--tls-cert", str(CERTIFICATE), "--tls-key", str(KEY)]
    with tempfile.TemporaryDirectory(prefix="penstock-compat-") as scratch:
        started = _one_node(log, Path(scratch), options) if nodes == 1 else _cluster(log.parent, Path(scratch), options, nodes)
        with started as address:
            yield address


@contextmanager
def registry(log: Path, nodes: int) -> Iterator[BrokerAddress]:
    """A node without encryption, or a cluster of them, whose schema registry is asked; of a cluster that of the second node."""
    options = ["--auto-create-topics", "true"]
    with tempfile.TemporaryDirectory(prefix="penstock-compat-") as scratch:
        if nodes == 1:
            log.unlink(missing_ok=True)
            argv = ["--data-dir", str(Path(scratch) / "data"), "--http-port", "none", "--schema-registry-port", "0", *options]
            with running_node(log, argv) as node:
                port = node.ready["listeners"]["schema_registry"]["port"]
                yield BrokerAddress(node.bootstrap, 0, f"http://127.0.0.1:{port}")
        else:
            with running_cluster(Path(scratch), nodes, options=dict.fromkeys(range(1, nodes + 1), options)) as cluster:
                url = f"http://127.0.0.1:{cluster.http_port(TOLD)}/schema-registry"
                yield BrokerAddress(f"127.0.0.1:{cluster.kafka_port(TOLD)}", 0, url)


@contextmanager
def _one_node(log: Path, scratch: Path, options: list[str]) -> Iterator[BrokerAddress]:
    log.unlink(missing_ok=True)
    # The suites take it that the first broker is number 0.
    argv = ["--data-dir", str(scratch / "data"), "--host", "127.0.0.1", "--node-id", "0", "--kafka-tls-port", "0", *options]
    with running_node(log, argv) as node:
        yield BrokerAddress(node.bootstrap, int(node.ready["listeners"]["kafka_tls"]["port"]))
        node.stop()


@contextmanager
def _cluster(logs: Path, scratch: Path, options: list[str], nodes: int) -> Iterator[BrokerAddress]:
    ports = free_ports(nodes)
    by_node = {number: ["--kafka-tls-port", str(port), *options] for number, port in enumerate(ports, 1)}
    try:
        with running_cluster(scratch, nodes, options=by_node) as cluster:
            yield BrokerAddress(f"127.0.0.1:{cluster.kafka_port(TOLD)}", ports[TOLD - 1])
    finally:
        for log in scratch.glob("*.log"):
            shutil.copy(log, logs)


def _matches(name: str, expression: str | None) -> bool:
    return expression is None or expression in name


def _merged(outcomes: dict[str, Outcome], again: dict[str, Outcome]) -> Ran:
    flaky = {
        name
        for name, outcome in again.items()
        if outcome.verdict == "passed" and name in outcomes and outcomes[name].verdict == "failed"
    }
    return Ran(outcomes | {name: again[name] for name in flaky}, flaky)
