"""Settings of this broker, for DescribeConfigs, AlterConfigs and IncrementalAlterConfigs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from penstock.broker import TOPIC_CONFIG_KEYS
from penstock.broker.dynamic_config import ALL_BROKERS, BROKER_NAMES, DYNAMIC_KEYS
from penstock.core.errors import InvalidRequestError
from penstock.gateway.kafka.broker_configs import BrokerConfig, broker_configs
from penstock.gateway.kafka.node import Node
from penstock.kafka.protocol.configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsSynonym,
    IncrementalAlterableConfig,
)

DYNAMIC_SOURCE, DYNAMIC_DEFAULT_SOURCE, STATIC_SOURCE, DEFAULT_SOURCE = 2, 3, 4, 5
SET, DELETE = 0, 1
CONFIG_TYPES: Final = {"boolean": 1, "string": 2, "int": 3, "short": 4, "long": 5, "double": 6, "list": 7}


def describe_broker(node: Node, name: str) -> list[DescribeConfigsResourceResult]:
    """Every setting of this broker; without a name, what was set for all brokers while they run."""
    if name not in (ALL_BROKERS, str(node.node_id)):
        raise InvalidRequestError(f"this is broker {node.node_id}; ask broker {name!r} for its settings, if there is one")
    if name == ALL_BROKERS:
        own = node.broker.dynamic.own(ALL_BROKERS)
        return [_described(key, dynamic_synonyms(node, key)[-1:], DYNAMIC_KEYS[key].kind, DYNAMIC_KEYS[key].doc) for key in own]
    started: dict[str, tuple[BrokerConfig, int]] = {key: (config, STATIC_SOURCE) for key, config in broker_configs(node).items()}
    for topic_name, key in BROKER_NAMES.items():
        default, _, kind, doc = TOPIC_CONFIG_KEYS[topic_name]
        started[key] = (BrokerConfig(default, kind, doc), DEFAULT_SOURCE)
    described = []
    for key in sorted(started.keys() | node.broker.dynamic.values.keys()):
        synonyms = dynamic_synonyms(node, key)
        if key in started:
            config, source = started[key]
            synonyms.append(DescribeConfigsSynonym(name=key, value=config.value, source=source))
            described.append(_described(key, synonyms, config.kind, config.doc))
        else:
            described.append(_described(key, synonyms, DYNAMIC_KEYS[key].kind, DYNAMIC_KEYS[key].doc))
    return described


def dynamic_synonyms(node: Node, key: str) -> list[DescribeConfigsSynonym]:
    """Where a setting was changed while the broker runs, what counts first."""
    layers = ((str(node.node_id), DYNAMIC_SOURCE), (ALL_BROKERS, DYNAMIC_DEFAULT_SOURCE))
    layered = ((node.broker.dynamic.own(name).get(key), source) for name, source in layers)
    return [DescribeConfigsSynonym(name=key, value=value, source=source) for value, source in layered if value is not None]


async def set_broker(node: Node, name: str, settings: dict[str, str], *, validate_only: bool) -> None:
    """Set all that is set for this broker, or for all, while they run."""
    _check_name(node, name)
    async with node.broker.dynamic.changing:
        await _set(node, name, settings, validate_only=validate_only)


async def change_broker(node: Node, name: str, changes: Sequence[IncrementalAlterableConfig], *, validate_only: bool) -> None:
    """Change some of what is set for this broker, or for all, while they run."""
    _check_name(node, name)
    names = [change.name for change in changes]
    if len(set(names)) < len(names):
        raise InvalidRequestError("a setting is named more than once")
    dynamic = node.broker.dynamic
    async with dynamic.changing:
        settings = dynamic.own(name)
        for change in changes:
            if change.config_operation == DELETE:
                settings.pop(change.name, None)  # tools also delete what they may have set
            elif change.config_operation != SET:
                raise InvalidRequestError(f"{change.name}: a setting of a broker can be set and deleted, nothing else")
            elif change.value is None:
                raise InvalidRequestError(f"{change.name}: a value is missing")
            else:
                settings[change.name] = change.value
        await _set(node, name, settings, validate_only=validate_only)


async def _set(node: Node, name: str, settings: dict[str, str], *, validate_only: bool) -> None:
    node.broker.dynamic.check(settings)
    if not validate_only and settings != node.broker.dynamic.own(name):
        await node.coordinator.configure(name, settings)


def _check_name(node: Node, name: str) -> None:
    if name not in (ALL_BROKERS, *(str(broker.node_id) for broker in node.brokers())):
        raise InvalidRequestError(f"this is broker {node.node_id}; broker {name!r} is not known")


def _described(key: str, synonyms: list[DescribeConfigsSynonym], kind: str, doc: str) -> DescribeConfigsResourceResult:
    """A setting whose value is the first of these."""
    return DescribeConfigsResourceResult(
        name=key,
        value=synonyms[0].value,
        read_only=key not in DYNAMIC_KEYS,
        config_source=synonyms[0].source,
        synonyms=synonyms,
        config_type=CONFIG_TYPES[kind],
        documentation=doc,
    )
