"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs and ListConfigResources."""

from __future__ import annotations

from typing import Final

from penstock.broker import TOPIC_CONFIG_KEYS, InvalidConfigError, Topic, TopicConfig, unknown_topic_config
from penstock.broker.dynamic_config import BROKER_NAMES
from penstock.core.errors import InvalidRequestError, PenstockError
from penstock.gateway.kafka.apis.broker_settings import (
    CONFIG_TYPES,
    DEFAULT_SOURCE,
    STATIC_SOURCE,
    change_broker,
    describe_broker,
    dynamic_synonyms,
    set_broker,
)
from penstock.gateway.kafka.apis.group_configs import change_group, describe_group, set_group
from penstock.gateway.kafka.apis.topic_lookup import find_topic, topic_code
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
    IncrementalAlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
TOPIC_SOURCE = 1
SET, DELETE, APPEND, SUBTRACT = range(4)
TYPED_FROM = 1

# What the broker alone decides on; tools show it among what is set, as they do with newer Kafka.
FIXED: Final = frozenset({"min.insync.replicas"})


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
        settings = {config.name: config.value for config in resource.configs if config.value is not None}
        try:
            if resource.resource_type == GROUP:
                await set_group(call.node, resource.resource_name, settings, validate_only=request.validate_only)
            elif resource.resource_type == BROKER:
                await set_broker(call.node, resource.resource_name, settings, validate_only=request.validate_only)
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
            name, changes = resource.resource_name, resource.configs
            if resource.resource_type == GROUP:
                await change_group(call.node, name, changes, validate_only=request.validate_only)
            elif resource.resource_type == BROKER:
                await change_broker(call.node, name, changes, validate_only=request.validate_only)
            else:
                topic = _alterable(call.node, resource.resource_type, resource.resource_name)
                await _configure(call, topic, _changed(topic.config, resource.configs), validate_only=request.validate_only)
        except PenstockError as error:
            result.error_code, result.error_message = topic_code(error), str(error)
        response.responses.append(result)
    return response


async def _configure(call: Call, topic: Topic, config: TopicConfig, *, validate_only: bool) -> None:
    check_in_sync(call.node, config)
    if not validate_only:
        await call.node.coordinator.configure_topic(topic.name, config)


def check_in_sync(node: Node, config: TopicConfig) -> None:
    """InvalidConfigError if a topic asks for more replicas in sync than the storage group keeps."""
    wanted, most = int(config["min.insync.replicas"]), node.view.copies_max
    if wanted > most:
        raise InvalidConfigError(
            f"min.insync.replicas is {wanted}; the storage group keeps the copies, and offers at most {most}"
        )


async def list_config_resources(call: Call, request: ListConfigResourcesRequest) -> ListConfigResourcesResponse:
    """Everything that has settings."""
    known = (TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP)
    # Version 0 asks for the configurations of client metrics, of which there are none.
    wanted = (request.resource_types or known) if call.version >= TYPED_FROM else [CLIENT_METRICS]
    if any(kind not in known for kind in wanted):
        return ListConfigResourcesResponse(error_code=errors.UNSUPPORTED_VERSION)
    resources: list[ConfigResource] = []
    if TOPIC in wanted:
        topics = call.node.broker.catalog.topics()
        resources += (ConfigResource(resource_name=topic.name, resource_type=TOPIC) for topic in topics)
    if BROKER in wanted:
        names = {*(str(broker.node_id) for broker in call.node.brokers()), *call.node.broker.dynamic.names()}
        resources += (ConfigResource(resource_name=name, resource_type=BROKER) for name in sorted(names))
    if GROUP in wanted:
        groups = call.node.coordinator.groups.consumer.configs.names()
        resources += (ConfigResource(resource_name=name, resource_type=GROUP) for name in groups)
    return ListConfigResourcesResponse(config_resources=resources)


def _describe(node: Node, resource: DescribeConfigsResource) -> list[DescribeConfigsResourceResult]:
    if resource.resource_type == TOPIC:
        configs = describe_topic(node, find_topic(node, resource.resource_name).config)
    elif resource.resource_type == BROKER:
        configs = describe_broker(node, resource.resource_name)
    elif resource.resource_type == GROUP:
        configs = describe_group(node, resource.resource_name)
    else:
        raise InvalidRequestError(f"resources of type {resource.resource_type} have no settings here")
    wanted = resource.configuration_keys
    return [config for config in configs if wanted is None or not wanted or config.name in wanted]


def describe_topic(node: Node, config: TopicConfig) -> list[DescribeConfigsResourceResult]:
    """Every setting of a topic, and where its value comes from."""
    configs = []
    for name, key in sorted(TOPIC_CONFIG_KEYS.items()):
        broker_name = BROKER_NAMES.get(name, name)
        synonyms = dynamic_synonyms(node, broker_name)
        if name in config.own:
            synonyms.insert(0, DescribeConfigsSynonym(name=name, value=config[name], source=TOPIC_SOURCE))
        source = STATIC_SOURCE if name in FIXED else DEFAULT_SOURCE
        synonyms.append(DescribeConfigsSynonym(name=broker_name, value=key.default, source=source))
        configs.append(
            DescribeConfigsResourceResult(
                name=name,
                value=config[name],
                config_source=synonyms[0].source,
                synonyms=synonyms,
                config_type=CONFIG_TYPES[key.kind],
                documentation=key.doc,
            )
        )
    return configs


def _alterable(node: Node, kind: int, name: str) -> Topic:
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
        if change.config_operation == DELETE:
            # As in Kafka, a name that is not known has no value to delete: MirrorMaker deletes every setting that has its
            # default at the source, also those that only the source knows.
            if key is not None:
                deletes.add(change.name)
            continue
        if key is None:
            raise unknown_topic_config(change.name)
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
