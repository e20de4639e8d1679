"""Settings of groups, for DescribeConfigs, AlterConfigs and IncrementalAlterConfigs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from penstock.broker import InvalidConfigError
from penstock.broker.groups import GROUP_CONFIG_KEYS, check_group_name
from penstock.core.errors import InvalidRequestError
from penstock.gateway.kafka.node import Node
from penstock.kafka.protocol.configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsSynonym,
    IncrementalAlterableConfig,
)

GROUP_SOURCE, DEFAULT_SOURCE = 8, 5
INT_TYPE: Final = 3
SET, DELETE = 0, 1


def describe_group(node: Node, name: str) -> list[DescribeConfigsResourceResult]:
    """Every setting of a group, whether or not it is there."""
    check_group_name(name)
    configs = node.coordinator.groups.consumer.configs
    own, options, defaults = configs.own(name), configs.options(name), node.broker.options.consumer_groups
    described = []
    for key, (option, _, doc) in GROUP_CONFIG_KEYS.items():
        synonyms = [DescribeConfigsSynonym(name=f"group.{key}", value=str(getattr(defaults, option)), source=DEFAULT_SOURCE)]
        if key in own:
            synonyms.insert(0, DescribeConfigsSynonym(name=key, value=own[key], source=GROUP_SOURCE))
        described.append(
            DescribeConfigsResourceResult(
                name=key,
                value=str(getattr(options, option)),
                config_source=GROUP_SOURCE if key in own else DEFAULT_SOURCE,
                synonyms=synonyms,
                config_type=INT_TYPE,
                documentation=doc,
            )
        )
    return described


async def set_group(node: Node, name: str, own: dict[str, str], *, validate_only: bool) -> None:
    """Set all that is set for a group."""
    check_group_name(name)
    coordinator = node.coordinator.groups.consumer
    coordinator.configs.check(own)
    if not validate_only:
        await coordinator.configure(name, own)


async def change_group(node: Node, name: str, changes: Sequence[IncrementalAlterableConfig], *, validate_only: bool) -> None:
    """Change some of what is set for a group."""
    names = [change.name for change in changes]
    if len(set(names)) < len(names):
        raise InvalidRequestError("a setting is named more than once")
    configs = node.coordinator.groups.consumer.configs
    async with configs.changing:
        own = configs.own(name)
        for change in changes:
            _change(own, change)
        await set_group(node, name, own, validate_only=validate_only)


def _change(own: dict[str, str], change: IncrementalAlterableConfig) -> None:
    if change.name not in GROUP_CONFIG_KEYS:
        raise InvalidConfigError(f"unknown group configuration {change.name!r}; there are {', '.join(GROUP_CONFIG_KEYS)}")
    if change.config_operation == DELETE:
        own.pop(change.name, None)
    elif change.config_operation != SET:
        raise InvalidConfigError(f"{change.name}: operation {change.config_operation} is not for a number")
    elif change.value is None:
        raise InvalidRequestError(f"{change.name}: a value is missing")
    else:
        own[change.name] = change.value
