"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs and ListConfigResources."""

from __future__ import annotations

from typing import Final

from penstock.broker import TOPIC_CONFIG_KEYS, InvalidConfigError, Topic, TopicConfig
from penstock.core.errors import InvalidRequestError, PenstockError
from penstock.gateway.kafka.apis.group_configs import change_group, describe_group, set_group
from penstock.gateway.kafka.apis.topic_lookup import find_topic, topic_code
from penstock.gateway.kafka.broker_configs import broker_configs
from penstock.gateway.kafka.call import Call
from penstock.gateway.kafka.node import Node
from penstock.kafka.protocol import errors
from penstock.kafka.protocol.configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
    ConfigResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
TOPIC_SOURCE, STATIC_BROKER_SOURCE, DEFAULT_SOURCE = 1, 4, 5
SET, DELETE, APPEND, SUBTRACT = range(4)
TYPED_FROM = 1

CONFIG_TYPES: Final = {"boolean": 1, "string": 2, "int": 3, "short": 4, "long": 5, "double": 6, "list": 7}
# What the broker alone decides on; tools show it among what is set, as they do with newer Kafka.
FIXED: Final = frozenset({"min.insync.replicas"})
# What a topic's setting is called where it is set for all topics.
BROKER_NAMES: Final = {
    "cleanup.policy": "log.cleanup.policy",
    "compression.type": "compression.type",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "file.delete.delay.ms": "log.segment.delete.delay.ms",
    "flush.messages": "log.flush.interval.messages",
    "flush.ms": "log.flush.interval.ms",
    "index.interval.bytes": "log.index.interval.bytes",
    "local.retention.bytes": "log.local.retention.bytes",
    "local.retention.ms": "log.local.retention.ms",
    "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
    "max.message.bytes": "message.max.bytes",
    "message.downconversion.enable": "log.message.downconversion.enable",
    "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
    "message.timestamp.type": "log.message.timestamp.type",
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
    "min.insync.replicas": "min.insync.replicas",
    "preallocate": "log.preallocate",
    "retention.bytes": "log.retention.bytes",
    "retention.ms": "log.retention.ms",
    "segment.bytes": "log.segment.bytes",
    "segment.index.bytes": "log.index.size.max.bytes",
    "segment.jitter.ms": "log.roll.jitter.ms",
    "segment.ms": "log.roll.ms",
    "unclean.leader.election.enable": "unclean.leader.election.enable",
}


async def describe_configs(call: Call, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    """The settings of topics and of this broker, and where each value comes from."""
    results = []
    for resource in request.resources:
        result = DescribeConfigsResult(
            error_message=None, resource_type=resource.resource_type, resource_name=resource.resource_name
        )
        try:
            result.configs = _describe(call.node, resource)
        except PenstockError as error:
            result.error_code, result.error_message = topic_code(error), str(error)
        for config in result.configs:
            if not request.include_synonyms:
                config.synonyms = []
            if not request.include_documentation:
                config.documentation = None
        results.append(result)
    return DescribeConfigsResponse(results=results)


async def alter_configs(call: Call, request: AlterConfigsRequest) -> AlterConfigsResponse:
    """Replace all that topics set themselves."""
    response = AlterConfigsResponse()
    for resource in request.resources:
        result = AlterConfigsResourceResponse(
            error_message=None, resource_type=resource.resource_type, resource_name=resource.resource_name
        )
        settings = {one.name: one.value for one in resource.configs if one.value is not None}
        try:
            if resource.resource_type == GROUP:
                await set_group(call.node, resource.resource_name, settings, validate_only=request.validate_only)
            else:
                topic = _alterable(call.node, resource.resource_type, resource.resource_name)
                await _configure(call, topic, TopicConfig(settings), validate_only=request.validate_only)
        except PenstockError as error:
            result.error_code, result.error_message = topic_code(error), str(error)
        response.responses.append(result)
    return response


async def incremental_alter_configs(call: Call, request: IncrementalAlterConfigsRequest) -> IncrementalAlterConfigsResponse:
    """Change some of what topics set themselves."""
    response = IncrementalAlterConfigsResponse()
    for resource in request.resources:
        result = IncrementalAlterConfigsResourceResponse(
            error_message=None, resource_type=resource.resource_type, resource_name=resource.resource_name
        )
        try:
            if resource.resource_type == GROUP:
                name, changes = resource.resource_name, resource.configs
                await change_group(call.node, name, changes, validate_only=request.validate_only)
            elif not _is_nothing(resource):
                topic = _alterable(call.node, resource.resource_type, resource.resource_name)
                await _configure(call, topic, _changed(topic.config, resource.configs), validate_only=request.validate_only)
        except PenstockError as error:
            result.error_code, result.error_message = topic_code(error), str(error)
        response.responses.append(result)
    return response


async def _configure(call: Call, topic: Topic, config: TopicConfig, *, validate_only: bool) -> None:
    if not validate_only:
        await call.node.broker.configure_topic(topic.name, config)


async def list_config_resources(call: Call, request: ListConfigResourcesRequest) -> ListConfigResourcesResponse:
    """Everything that has settings."""
    known = (TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP)
    # Version 0 asks for the configurations of client metrics, of which there are none.
    wanted = (request.resource_types or known) if call.version >= TYPED_FROM else [CLIENT_METRICS]
    if any(kind not in known for kind in wanted):
        return ListConfigResourcesResponse(error_code=errors.UNSUPPORTED_VERSION)
    found: list[ConfigResource] = []
    if TOPIC in wanted:
        topics = call.node.broker.catalog.topics()
        found += (ConfigResource(resource_name=topic.name, resource_type=TOPIC) for topic in topics)
    if BROKER in wanted:
        found.append(ConfigResource(resource_name=str(call.node.node_id), resource_type=BROKER))
    if GROUP in wanted:
        groups = call.node.broker.groups.consumer.configs.names()
        found += (ConfigResource(resource_name=name, resource_type=GROUP) for name in groups)
    return ListConfigResourcesResponse(config_resources=found)


def _describe(node: Node, resource: DescribeConfigsResource) -> list[DescribeConfigsResourceResult]:
    if resource.resource_type == TOPIC:
        found = _describe_topic(find_topic(node, resource.resource_name).config)
    elif resource.resource_type == BROKER:
        if resource.resource_name not in ("", str(node.node_id)):
            raise InvalidRequestError(f"this is broker {node.node_id}; broker {resource.resource_name!r} is not known")
        # Without a name, what is set for all brokers is asked for; nothing ever is.
        found = _describe_broker(node) if resource.resource_name else []
    elif resource.resource_type == GROUP:
        found = describe_group(node, resource.resource_name)
    else:
        raise InvalidRequestError(f"resources of type {resource.resource_type} have no settings here")
    wanted = resource.configuration_keys
    return [config for config in found if wanted is None or not wanted or config.name in wanted]


def _describe_topic(config: TopicConfig) -> list[DescribeConfigsResourceResult]:
    found = []
    for name, key in sorted(TOPIC_CONFIG_KEYS.items()):
        synonyms = []
        if name in config.own:
            synonyms.append(DescribeConfigsSynonym(name=name, value=config[name], source=TOPIC_SOURCE))
        source = STATIC_BROKER_SOURCE if name in FIXED else DEFAULT_SOURCE
        synonyms.append(DescribeConfigsSynonym(name=BROKER_NAMES.get(name, name), value=key.default, source=source))
        found.append(
            DescribeConfigsResourceResult(
                name=name,
                value=config[name],
                config_source=TOPIC_SOURCE if name in config.own else source,
                synonyms=synonyms,
                config_type=CONFIG_TYPES[key.kind],
                documentation=key.doc,
            )
        )
    return found


def _describe_broker(node: Node) -> list[DescribeConfigsResourceResult]:
    found = []
    for name, config in broker_configs(node).items():
        found.append(
            DescribeConfigsResourceResult(
                name=name,
                value=config.value,
                read_only=True,
                config_source=STATIC_BROKER_SOURCE,
                synonyms=[DescribeConfigsSynonym(name=name, value=config.value, source=STATIC_BROKER_SOURCE)],
                config_type=CONFIG_TYPES[config.kind],
                documentation=config.doc,
            )
        )
    for name, broker_name in BROKER_NAMES.items():
        key = TOPIC_CONFIG_KEYS.get(name)
        if key is None:
            continue
        found.append(
            DescribeConfigsResourceResult(
                name=broker_name,
                value=key.default,
                read_only=True,
                config_source=DEFAULT_SOURCE,
                synonyms=[DescribeConfigsSynonym(name=broker_name, value=key.default, source=DEFAULT_SOURCE)],
                config_type=CONFIG_TYPES[key.kind],
                documentation=key.doc,
            )
        )
    return sorted(found, key=lambda one: one.name)


def _is_nothing(resource: IncrementalAlterConfigsResource) -> bool:
    """Whether a broker is only told to drop settings: none is ever set by its clients. Tools tidy up after themselves so."""
    return resource.resource_type == BROKER and all(one.config_operation == DELETE for one in resource.configs)


def _alterable(node: Node, kind: int, name: str) -> Topic:
    if kind == BROKER:
        raise InvalidConfigError("a broker is configured where it is started, in penstock.toml or its environment")
    if kind != TOPIC:
        raise InvalidRequestError(f"resources of type {kind} have no settings here")
    return find_topic(node, name)


def _changed(config: TopicConfig, changes: list[IncrementalAlterableConfig]) -> TopicConfig:
    names = [change.name for change in changes]
    if len(set(names)) < len(names):
        raise InvalidRequestError("a setting is named more than once")
    sets: dict[str, str] = {}
    deletes: set[str] = set()
    for change in changes:
        key = TOPIC_CONFIG_KEYS.get(change.name)
        if key is None:
            raise InvalidConfigError(f"unknown topic configuration {change.name!r}")
        if change.config_operation == DELETE:
            deletes.add(change.name)
            continue
        if change.value is None:
            raise InvalidRequestError(f"{change.name}: a value is missing")
        if change.config_operation == SET:
            sets[change.name] = change.value
        elif change.config_operation in (APPEND, SUBTRACT) and key.kind == "list":
            sets[change.name] = _edit_list(config[change.name], change)
        else:
            raise InvalidConfigError(f"{change.name}: operation {change.config_operation} is not for a value of type {key.kind}")
    return config.changed(sets, frozenset(deletes))


def _edit_list(old: str, change: IncrementalAlterableConfig) -> str:
    items = [item for item in old.split(",") if item]
    named = [item for item in (change.value or "").split(",") if item]
    if change.config_operation == APPEND:
        items += (item for item in named if item not in items)
    else:
        items = [item for item in items if item not in named]
    return ",".join(items)
