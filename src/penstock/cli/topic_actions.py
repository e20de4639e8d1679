"""What the subcommands of `penstock topic` do."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from typing import Final, NamedTuple

from penstock.cli.exit_codes import ExitCode
from penstock.cli.failure import CommandError, as_command_error, usage
from penstock.cli.kafka_client import CommandClient
from penstock.cli.output import Output, confirm, waiting
from penstock.cli.positions import EARLIEST, LATEST, chosen_partitions, find_offsets, list_offsets
from penstock.cli.sizes import counted
from penstock.cli.topic_list import TOPIC_RESOURCE, list_topics, topic_uuid
from penstock.kafka.client import RequestRefusedError
from penstock.kafka.protocol import configs, errors, keys, offsets, topics
from penstock.kafka.protocol.metadata import MetadataResponseTopic

OWN_CONFIG: Final = 1  # DescribeConfigs' source: set on the topic itself
SET, UNSET = 0, 1

Action = Callable[[CommandClient, Namespace, Output], int]


def create(client: CommandClient, arguments: Namespace, output: Output) -> int:
    """Make topics; each is tried, whatever becomes of the others."""
    settings = [topics.CreatableTopicConfig(name=name, value=value) for name, value in arguments.configs]
    partitions, replicas = arguments.partitions or -1, arguments.replication_factor or -1
    wanted = [
        topics.CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas, configs=settings)
        for name in arguments.names
    ]
    request = topics.CreateTopicsRequest(topics=wanted, timeout_ms=_milliseconds(client))
    with waiting(f"creating {', '.join(arguments.names)}"):
        answer = client.call(keys.CREATE_TOPICS, request, topics.CreateTopicsResponse)
    failures = _Failures()
    created = []
    for item in answer.topics:
        if item.error_code == errors.TOPIC_ALREADY_EXISTS and arguments.if_not_exists:
            output.say(f"topic {item.name} already exists")
        elif item.error_code:
            failures.add(RequestRefusedError(f"topic {item.name!r}", item.error_code, item.error_message))
        else:
            created.append({"name": item.name, "id": topic_uuid(item.topic_id), "partitions": item.num_partitions})
            output.say(f"created topic {item.name} with {_partitions(item.num_partitions)}")
    if output.as_json:
        output.document(created)
    return failures.finish()


def describe(client: CommandClient, arguments: Namespace, output: Output) -> int:
    """Partitions with leaders and offsets, and the configuration."""
    described = []
    for name in arguments.names:
        topic = client.topic(name)
        settings = topic_configs(client, name, everything=arguments.all_configs)
        numbers = chosen_partitions(topic, None)
        starts = list_offsets(client, topic, dict.fromkeys(numbers, EARLIEST))
        ends = list_offsets(client, topic, dict.fromkeys(numbers, LATEST))
        placed = {item.partition_index: item for item in topic.partitions}
        rows = [
            PartitionRow(
                number,
                placed[number].leader_id,
                starts[number],
                ends[number],
                ends[number] - starts[number],
                placed[number].replica_nodes,
                placed[number].isr_nodes,
            )
            for number in numbers
        ]
        described.append((topic, settings, rows))
    if output.as_json:
        output.document([_document(*item) for item in described])
        return ExitCode.OK
    for at, (topic, settings, rows) in enumerate(described):
        if output.is_terminal:
            output.line(("\n" if at else "") + f"{topic.name}  {topic_uuid(topic.topic_id)}  {_partitions(len(rows))}")
            for key, value in settings.items():
                output.line(f"  {key} = {value}")
            output.rows(_COLUMNS, [row.cells() for row in rows])
            continue
        output.rows(("kind", "topic", "id", "partitions"), [("topic", topic.name, topic_uuid(topic.topic_id), len(rows))])
        output.rows(("kind", "config", "value"), [("config", key, value) for key, value in settings.items()])
        output.rows(("kind", *_COLUMNS), [("partition", *row.cells()) for row in rows])
    return ExitCode.OK


def alter(client: CommandClient, arguments: Namespace, output: Output) -> int:
    """Set some configurations and put others back."""
    if not arguments.configs and not arguments.unset:
        raise usage("nothing to change; give --set KEY=VALUE or --unset KEY")
    changes = [
        configs.IncrementalAlterableConfig(name=name, config_operation=SET, value=value) for name, value in arguments.configs
    ]
    changes += [configs.IncrementalAlterableConfig(name=name, config_operation=UNSET, value=None) for name in arguments.unset]
    resource = configs.IncrementalAlterConfigsResource(
        resource_type=TOPIC_RESOURCE, resource_name=arguments.name, configs=changes
    )
    request = configs.IncrementalAlterConfigsRequest(resources=[resource])
    answer = client.call(keys.INCREMENTAL_ALTER_CONFIGS, request, configs.IncrementalAlterConfigsResponse)
    for item in answer.responses:
        if item.error_code:
            raise RequestRefusedError(f"topic {arguments.name!r}", item.error_code, item.error_message)
    if output.as_json:
        output.document({"name": arguments.name, "config": topic_configs(client, arguments.name, everything=False)})
    output.say(f"changed {counted(len(changes), 'configuration')} of topic {arguments.name}")
    return ExitCode.OK


def delete(client: CommandClient, arguments: Namespace, output: Output) -> int:
    """Delete topics; each is tried, whatever becomes of the others."""
    names = ", ".join(arguments.names)
    if not confirm(f"Delete {names} with all their messages?", yes=arguments.yes):
        raise CommandError("nothing was deleted")
    request = topics.DeleteTopicsRequest(topic_names=arguments.names, timeout_ms=_milliseconds(client))
    with waiting(f"deleting {names}"):
        answer = client.call(keys.DELETE_TOPICS, request, topics.DeleteTopicsResponse)
    failures = _Failures()
    gone = []
    for item in answer.responses:
        if item.error_code == errors.UNKNOWN_TOPIC_OR_PARTITION and arguments.if_exists:
            output.say(f"there is no topic {item.name}")
        elif item.error_code:
            failures.add(RequestRefusedError(f"topic {item.name!r}", item.error_code, item.error_message))
        else:
            gone.append(item.name)
            output.say(f"deleted topic {item.name}")
    if output.as_json:
        output.document({"deleted": gone})
    return failures.finish()


def add_partitions(client: CommandClient, arguments: Namespace, output: Output) -> int:
    """Give a topic more partitions."""
    wanted = topics.CreatePartitionsTopic(name=arguments.name, count=arguments.total, assignments=None)
    request = topics.CreatePartitionsRequest(topics=[wanted], timeout_ms=_milliseconds(client))
    answer = client.call(keys.CREATE_PARTITIONS, request, topics.CreatePartitionsResponse)
    for item in answer.results:
        if item.error_code:
            raise RequestRefusedError(f"topic {arguments.name!r}", item.error_code, item.error_message)
    if output.as_json:
        output.document({"name": arguments.name, "partitions": arguments.total})
    output.say(f"topic {arguments.name} now has {_partitions(arguments.total)}")
    return ExitCode.OK


def trim(client: CommandClient, arguments: Namespace, output: Output) -> int:
    """Drop what is before a position."""
    topic = client.topic(arguments.name)
    numbers = chosen_partitions(topic, arguments.partition)
    if arguments.before.offset is not None and len(numbers) > 1:
        raise usage("an offset needs exactly one --partition; or give a time")
    before = find_offsets(client, topic, dict.fromkeys(numbers, arguments.before))
    starts = list_offsets(client, topic, dict.fromkeys(numbers, EARLIEST))
    dropped = sum(max(0, before[number] - starts[number]) for number in numbers)
    if not confirm(f"Delete the {dropped} oldest messages of {arguments.name}?", yes=arguments.yes):
        raise CommandError("nothing was deleted")
    with waiting(f"trimming {arguments.name}"):
        deleted = _delete_records(client, topic, before)
    rows = [(number, starts[number], low) for number, low in sorted(deleted.items())]
    if output.as_json:
        output.document(
            {
                "name": topic.name,
                "partitions": [{"partition": number, "was": was, "start": start} for number, was, start in rows],
            }
        )
    else:
        output.rows(("partition", "was", "start"), rows)
    return ExitCode.OK


ACTIONS: Final[dict[str, Action]] = {
    "create": create,
    "list": list_topics,
    "describe": describe,
    "alter": alter,
    "delete": delete,
    "add-partitions": add_partitions,
    "trim": trim,
}


class PartitionRow(NamedTuple):
    """A partition as it is described."""

    partition: int
    leader: int
    start: int
    end: int
    messages: int
    replicas: list[int]
    in_sync: list[int]

    def cells(self) -> tuple[str | int | None, ...]:
        """The columns of a table."""
        replicas, in_sync = (",".join(map(str, nodes)) for nodes in (self.replicas, self.in_sync))
        return self.partition, self.leader, self.start, self.end, self.messages, replicas, in_sync


_COLUMNS: Final = tuple(name.replace("_", " ") for name in PartitionRow._fields)


class _Failures:
    """What went wrong with some of several topics; the last of it is told with the exit code."""

    def __init__(self) -> None:
        self._all: list[CommandError] = []

    def add(self, failure: RequestRefusedError) -> None:
        self._all.append(as_command_error(failure))

    def finish(self) -> int:
        if self._all:
            raise CommandError("; ".join(map(str, self._all)), self._all[0].exit_code)
        return ExitCode.OK


def _delete_records(client: CommandClient, topic: MetadataResponseTopic, before: dict[int, int]) -> dict[int, int]:
    leaders = {item.partition_index: item.leader_id for item in topic.partitions}
    low: dict[int, int] = {}
    for leader in sorted({leaders[number] for number in before}):
        partitions = [
            offsets.DeleteRecordsPartition(partition_index=number, offset=offset)
            for number, offset in before.items()
            if leaders[number] == leader
        ]
        request = offsets.DeleteRecordsRequest(
            topics=[offsets.DeleteRecordsTopic(name=topic.name or "", partitions=partitions)], timeout_ms=_milliseconds(client)
        )
        answer = client.node_call(leader, keys.DELETE_RECORDS, request, offsets.DeleteRecordsResponse)
        for item in answer.topics[0].partitions:
            if item.error_code:
                raise RequestRefusedError(f"partition {item.partition_index} of {topic.name!r}", item.error_code)
            low[item.partition_index] = item.low_watermark
    return low


def topic_configs(client: CommandClient, name: str, *, everything: bool) -> dict[str, str | None]:
    """The configuration of a topic: what is set on it, or all of it."""
    resource = configs.DescribeConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=name, configuration_keys=None)
    request = configs.DescribeConfigsRequest(resources=[resource])
    (answer,) = client.call(keys.DESCRIBE_CONFIGS, request, configs.DescribeConfigsResponse).results
    if answer.error_code:
        raise RequestRefusedError(f"topic {name!r}", answer.error_code, answer.error_message)
    shown = (item for item in answer.configs if everything or item.config_source == OWN_CONFIG)
    return {item.name: item.value for item in sorted(shown, key=lambda item: item.name)}


def _document(topic: MetadataResponseTopic, settings: dict[str, str | None], rows: list[PartitionRow]) -> dict[str, object]:
    partitions = [row._asdict() for row in rows]
    return {"name": topic.name, "id": topic_uuid(topic.topic_id), "config": settings, "partitions": partitions}


def _partitions(number: int) -> str:
    return f"{number} partition{'' if number == 1 else 's'}"


def _milliseconds(client: CommandClient) -> int:
    return int(client.timeout_s * 1000)
