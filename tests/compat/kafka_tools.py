"""Kafka's own command line tools against Penstock, by the main classes that its shell scripts start.

Each check runs one or a few tools the way an operator would and looks for what they must print.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path

from bench.kafka_peer.brokers import KAFKA_VERSION, java
from tests.compat.outcome import Outcome
from tests.compat.preparation import NotPreparedError

TOOLS = "org.apache.kafka.tools."
TOOL_TIMEOUT_S = 90
_numbers = count()
MESSAGES = [f"message {number}" for number in range(50)]


class Tools:
    """Runs tools against one broker."""

    def __init__(self, bootstrap: str, scratch: Path) -> None:
        self.bootstrap = bootstrap
        self.scratch = scratch

    def run(self, tool: str, *argv: str, stdin: str = "") -> str:
        """What a tool prints, on either channel; it must end well."""
        name = tool if tool.startswith("kafka.") else TOOLS + tool
        done = subprocess.run(
            [*java("-XX:TieredStopAtLevel=1"), name, *argv],
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=TOOL_TIMEOUT_S,
        )
        printed = done.stdout + done.stderr
        assert done.returncode == 0, f"{tool} {' '.join(argv)} ended with {done.returncode}: {printed[-1500:]}"
        return printed

    def admin(self, tool: str, *argv: str) -> str:
        """A tool that takes --bootstrap-server."""
        return self.run(tool, "--bootstrap-server", self.bootstrap, *argv)

    def topic(self, name: str, partitions: int = 1, *argv: str) -> str:
        """A new topic, whose name begins like this."""
        name = f"{name}-{next(_numbers)}"
        self.admin("TopicCommand", "--create", "--topic", name, "--partitions", str(partitions), *argv)
        return name

    def produce(self, topic: str, messages: Sequence[str] = MESSAGES, *properties: str) -> None:
        """Messages by the console producer."""
        options = [word for one in properties for word in ("--producer-property", one)]
        argv = ["--bootstrap-server", self.bootstrap, "--topic", topic, *options]
        self.run("ConsoleProducer", *argv, stdin="".join(f"{message}\n" for message in messages))

    def consume(self, topic: str, messages: int, *argv: str) -> list[str]:
        """Messages by the console consumer."""
        options = ["--topic", topic, "--from-beginning", "--max-messages", str(messages), "--timeout-ms", "30000", *argv]
        return [line for line in self.admin("consumer.ConsoleConsumer", *options).splitlines() if line.startswith("message")]

    def file(self, name: str, content: str) -> str:
        """A file that a tool reads."""
        path = self.scratch / name
        path.write_text(content, encoding="utf-8")
        return str(path)


def topics_are_made_listed_described_grown_and_deleted(tools: Tools) -> None:
    """kafka-topics"""
    name = tools.topic("tools-topics", 3)
    assert name in tools.admin("TopicCommand", "--list").split()
    tools.admin("TopicCommand", "--alter", "--topic", name, "--partitions", "5")
    described = tools.admin("TopicCommand", "--describe", "--topic", name)
    assert "PartitionCount: 5" in described
    assert described.count("Leader: ") == 5
    tools.admin("TopicCommand", "--delete", "--topic", name)
    assert name not in tools.admin("TopicCommand", "--list").split()


def messages_go_through_the_consoles(tools: Tools) -> None:
    """kafka-console-producer, kafka-console-consumer"""
    name = tools.topic("tools-console")
    tools.produce(name)
    assert tools.consume(name, len(MESSAGES)) == MESSAGES


def messages_go_through_in_every_compression(tools: Tools) -> None:
    """kafka-console-producer --compression-codec"""
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        name = tools.topic(f"tools-{codec}")
        tools.produce(name, MESSAGES, f"compression.type={codec}")
        assert tools.consume(name, len(MESSAGES)) == MESSAGES, codec


def a_topic_keeps_its_own_compression(tools: Tools) -> None:
    """kafka-topics --config compression.type, read by the Java client"""
    for codec in ("gzip", "snappy", "lz4", "zstd", "uncompressed"):
        name = tools.topic(f"tools-own-{codec}", 1, "--config", f"compression.type={codec}")
        tools.produce(name, MESSAGES, "compression.type=gzip")
        assert tools.consume(name, len(MESSAGES)) == MESSAGES, codec


def a_group_reads_and_is_described_reset_and_deleted(tools: Tools) -> None:
    """kafka-consumer-groups, with members of the classic protocol"""
    _read_in_a_group(tools, "tools-classic", "classic")


def a_group_of_the_new_protocol_reads_and_is_described_reset_and_deleted(tools: Tools) -> None:
    """kafka-consumer-groups, with members of KIP-848"""
    _read_in_a_group(tools, "tools-kip848", "consumer")


def _read_in_a_group(tools: Tools, name: str, protocol: str) -> None:
    name = tools.topic(name)
    tools.produce(name)
    property_ = ("--consumer-property", f"group.protocol={protocol}")
    assert tools.consume(name, len(MESSAGES), "--group", name, *property_) == MESSAGES
    groups = "consumer.group.ConsumerGroupCommand"
    assert name in tools.admin(groups, "--list").split()
    row = _row_of(tools.admin(groups, "--describe", "--group", name), name)
    assert row[3:6] == [str(len(MESSAGES)), str(len(MESSAGES)), "0"], row
    assert "Empty" in tools.admin(groups, "--describe", "--group", name, "--state")
    tools.admin(groups, "--reset-offsets", "--group", name, "--topic", name, "--to-offset", "40", "--execute")
    row = _row_of(tools.admin(groups, "--describe", "--group", name), name)
    assert row[3:6] == ["40", str(len(MESSAGES)), "10"], row
    tools.admin(groups, "--delete-offsets", "--group", name, "--topic", name)
    tools.admin(groups, "--delete", "--group", name)
    assert name not in tools.admin(groups, "--list").split()


def _row_of(printed: str, group: str) -> list[str]:
    return next(line.split() for line in printed.splitlines() if line.startswith(group))


def configurations_are_set_and_described(tools: Tools) -> None:
    """kafka-configs, of topics and of the broker"""
    name = tools.topic("tools-configs")
    entity = ("--entity-type", "topics", "--entity-name", name)
    tools.admin("kafka.admin.ConfigCommand", "--alter", *entity, "--add-config", "retention.ms=12345,segment.bytes=1048576")
    described = tools.admin("kafka.admin.ConfigCommand", "--describe", *entity)
    assert "retention.ms=12345" in described
    tools.admin("kafka.admin.ConfigCommand", "--alter", *entity, "--delete-config", "retention.ms")
    assert "retention.ms=12345" not in tools.admin("kafka.admin.ConfigCommand", "--describe", *entity)
    brokers = tools.admin("kafka.admin.ConfigCommand", "--describe", "--entity-type", "brokers", "--entity-name", "0", "--all")
    assert "advertised.listeners" in brokers


def quotas_are_set_and_described(tools: Tools) -> None:
    """kafka-configs, of clients"""
    entity = ("--entity-type", "clients", "--entity-name", "tools-client")
    tools.admin("kafka.admin.ConfigCommand", "--alter", *entity, "--add-config", "producer_byte_rate=1048576")
    assert "producer_byte_rate=1048576" in tools.admin("kafka.admin.ConfigCommand", "--describe", *entity)


def offsets_are_found_and_records_deleted(tools: Tools) -> None:
    """kafka-get-offsets, kafka-delete-records"""
    name = tools.topic("tools-offsets")
    tools.produce(name)
    assert f"{name}:0:50" in tools.admin("GetOffsetShell", "--topic", name)
    wanted = f'{{"version": 1, "partitions": [{{"topic": "{name}", "partition": 0, "offset": 20}}]}}'
    tools.admin("DeleteRecordsCommand", "--offset-json-file", tools.file("records.json", wanted))
    assert f"{name}:0:20" in tools.admin("GetOffsetShell", "--topic", name, "--time", "earliest")


def producers_and_consumers_are_measured(tools: Tools) -> None:
    """kafka-producer-perf-test, kafka-consumer-perf-test"""
    name = tools.topic("tools-perf", 3)
    sent = ("--topic", name, "--num-records", "20000", "--record-size", "100", "--throughput", "-1")
    printed = tools.run("ProducerPerformance", *sent, "--producer-props", f"bootstrap.servers={tools.bootstrap}", "acks=all")
    assert "20000 records sent" in printed
    read = tools.admin("ConsumerPerformance", "--topic", name, "--messages", "20000", "--timeout", "30000")
    assert ", 20000, " in read, read[-500:]


def transactions_are_measured_listed_and_described(tools: Tools) -> None:
    """kafka-producer-perf-test --transaction-duration-ms, kafka-transactions"""
    name = tools.topic("tools-transactions")
    sent = ("--topic", name, "--num-records", "5000", "--record-size", "100", "--throughput", "-1")
    ended = ("--transactional-id", name, "--transaction-duration-ms", "100")
    tools.run("ProducerPerformance", *sent, *ended, "--producer-props", f"bootstrap.servers={tools.bootstrap}")
    assert name in tools.admin("TransactionsCommand", "list").split()
    described = tools.admin("TransactionsCommand", "describe", "--transactional-id", name)
    assert "CompleteCommit" in described, described
    assert "ProducerId" in tools.admin("TransactionsCommand", "describe-producers", "--topic", name, "--partition", "0")
    read = tools.admin("ConsumerPerformance", "--topic", name, "--messages", "5000", "--timeout", "30000")
    assert ", 5000, " in read, read[-500:]


def verifiable_clients_agree(tools: Tools) -> None:
    """kafka-verifiable-producer, kafka-verifiable-consumer"""
    name = tools.topic("tools-verifiable", 2)
    made = tools.admin("VerifiableProducer", "--topic", name, "--max-messages", "300", "--acks", "-1")
    assert made.count('"producer_send_success"') == 300
    read = tools.admin(
        "VerifiableConsumer", "--topic", name, "--group-id", name, "--max-messages", "300",
        "--reset-policy", "earliest",
    )  # fmt: skip
    assert '"offsets_committed"' in read


def messages_are_copied_exactly_once(tools: Tools) -> None:
    """kafka's TransactionalMessageCopier: consume, transform, produce in transactions"""
    source, target = tools.topic("tools-copy-from"), tools.topic("tools-copy-to")
    tools.produce(source)
    argv = ["--broker-list", tools.bootstrap, "--transactional-id", source, "--consumer-group", source]
    argv += ["--input-topic", source, "--input-partition", "0", "--output-topic", target, "--transaction-size", "20"]
    tools.run("TransactionalMessageCopier", *argv, "--max-messages", str(len(MESSAGES)))
    committed = ("--isolation-level", "read_committed")
    assert tools.consume(target, len(MESSAGES), *committed) == MESSAGES


def latency_is_measured_end_to_end(tools: Tools) -> None:
    """kafka-e2e-latency"""
    name = tools.topic("tools-latency")
    assert "99th" in tools.run("EndToEndLatency", tools.bootstrap, name, "200", "all", "100")


def the_cluster_is_described(tools: Tools) -> None:
    """kafka-cluster, kafka-broker-api-versions, kafka-log-dirs, kafka-metadata-quorum, kafka-leader-election"""
    assert "Cluster ID" in tools.run("ClusterTool", "cluster-id", "--bootstrap-server", tools.bootstrap)
    assert "Fetch(1)" in tools.admin("BrokerApiVersionsCommand")
    name = tools.topic("tools-cluster")
    assert f'"{name}-0"' in tools.admin("LogDirsCommand", "--describe", "--topic-list", name)
    assert "LeaderId" in tools.admin("MetadataQuorumCommand", "describe", "--status")
    elected = tools.admin("LeaderElectionCommand", "--election-type", "preferred", "--topic", name, "--partition", "0")
    assert "Valid replica already elected" in elected


def partitions_stay_where_they_are(tools: Tools) -> None:
    """kafka-reassign-partitions"""
    name = tools.topic("tools-reassign")
    moves = f'{{"version": 1, "partitions": [{{"topic": "{name}", "partition": 0, "replicas": [0]}}]}}'
    plan = tools.file("moves.json", moves)
    command = "reassign.ReassignPartitionsCommand"
    assert "Successfully started" in tools.admin(command, "--reassignment-json-file", plan, "--execute")
    assert "is completed" in tools.admin(command, "--reassignment-json-file", plan, "--verify")


def every_group_is_listed(tools: Tools) -> None:
    """kafka-groups"""
    name = tools.topic("tools-groups")
    tools.produce(name)
    tools.consume(name, 1, "--group", name)
    assert name in tools.admin("GroupsCommand", "--list")


def access_rules_are_made_listed_and_removed(tools: Tools) -> None:
    """kafka-acls"""
    name = tools.topic("tools-acls")
    rule = ("--allow-principal", "User:anna", "--operation", "Read", "--topic", name)
    tools.admin("AclCommand", "--add", *rule)
    assert "User:anna" in tools.admin("AclCommand", "--list", "--topic", name)
    tools.admin("AclCommand", "--remove", "--force", *rule)
    assert "User:anna" not in tools.admin("AclCommand", "--list", "--topic", name)


def features_are_described(tools: Tools) -> None:
    """kafka-features"""
    assert "transaction.version" in tools.admin("FeatureCommand", "describe")


CHECKS: tuple[Callable[[Tools], None], ...] = (
    topics_are_made_listed_described_grown_and_deleted,
    messages_go_through_the_consoles,
    messages_go_through_in_every_compression,
    a_topic_keeps_its_own_compression,
    a_group_reads_and_is_described_reset_and_deleted,
    a_group_of_the_new_protocol_reads_and_is_described_reset_and_deleted,
    configurations_are_set_and_described,
    quotas_are_set_and_described,
    offsets_are_found_and_records_deleted,
    producers_and_consumers_are_measured,
    transactions_are_measured_listed_and_described,
    verifiable_clients_agree,
    messages_are_copied_exactly_once,
    latency_is_measured_end_to_end,
    the_cluster_is_described,
    partitions_stay_where_they_are,
    every_group_is_listed,
    access_rules_are_made_listed_and_removed,
    features_are_described,
)


def check_java() -> None:
    """NotPreparedError unless the tools can be run, for which they are fetched on first use."""
    try:
        java()
    except (RuntimeError, subprocess.CalledProcessError) as error:
        raise NotPreparedError(f"Kafka {KAFKA_VERSION}'s tools cannot be had: {error}") from error


def run_checks(bootstrap: str, scratch: Path, chosen: Sequence[str]) -> dict[str, Outcome]:
    """These checks by their names, and what became of each."""
    outcomes: dict[str, Outcome] = {}
    for check in CHECKS:
        name = check.__name__
        if name not in chosen:
            continue
        started = time.monotonic()
        try:
            check(Tools(bootstrap, scratch))
        except (AssertionError, subprocess.TimeoutExpired, StopIteration) as error:
            outcomes[name] = Outcome("failed", str(error) or "what was printed is not what it should be")
        else:
            outcomes[name] = Outcome("passed")
        print(f"  {outcomes[name].verdict:<8} {name} ({time.monotonic() - started:.1f} s)", flush=True)
    return outcomes
