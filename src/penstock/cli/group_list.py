"""`penstock group list`: every group with its lag, in a few requests however many groups there are."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterable, Mapping
from typing import Final

from penstock.cli.exit_codes import ExitCode
from penstock.cli.group_view import GroupListing, Place, list_groups
from penstock.cli.kafka_client import CommandClient
from penstock.cli.output import Output
from penstock.cli.positions import EARLIEST, LATEST, list_offsets
from penstock.kafka.protocol import keys, offsets

GROUPS_AT_ONCE: Final = 500


def list_all(client: CommandClient, arguments: Namespace, output: Output) -> int:
    """Prints groups in order of names. The lag is empty where the user may not see the offsets."""
    shown = [
        item
        for item in list_groups(client)
        if item.name.startswith(arguments.prefix)
        and arguments.kind in (None, item.kind)
        and (arguments.state is None or arguments.state.lower() == item.state.lower())
    ]
    lags = _lags(client, shown)
    if output.as_json:
        output.document(
            [{"name": item.name, "kind": item.kind, "state": item.state, "lag": lags.get(item.name)} for item in shown]
        )
    else:
        rows = [(item.name, item.kind, item.state, lags.get(item.name)) for item in shown]
        output.rows(("name", "kind", "state", "lag"), rows)
    return ExitCode.OK


def _lags(client: CommandClient, groups: Iterable[GroupListing]) -> dict[str, int]:
    """The messages each group has not read, over all partitions with a committed offset."""
    by_node: dict[int, list[str]] = {}
    for group in groups:
        by_node.setdefault(group.node, []).append(group.name)
    committed: dict[str, dict[Place, int]] = {}
    for node, names in by_node.items():
        for start in range(0, len(names), GROUPS_AT_ONCE):
            committed |= _committed(client, node, names[start : start + GROUPS_AT_ONCE])
    ranges = _ranges(client, {place for offsets_of in committed.values() for place in offsets_of})
    return {name: _lag(offsets_of, ranges) for name, offsets_of in committed.items()}


def _committed(client: CommandClient, node: int, names: list[str]) -> dict[str, dict[Place, int]]:
    request = offsets.OffsetFetchRequest(groups=[offsets.OffsetFetchRequestGroup(group_id=name, topics=None) for name in names])
    answer = client.node_call(node, keys.OFFSET_FETCH, request, offsets.OffsetFetchResponse)
    return {
        group.group_id: {
            (topic.name, item.partition_index): item.committed_offset
            for topic in group.topics
            for item in topic.partitions
            if not item.error_code and item.committed_offset >= 0
        }
        for group in answer.groups
        if not group.error_code
    }


def _ranges(client: CommandClient, places: set[Place]) -> dict[Place, tuple[int, int]]:
    """The first and the next offset of partitions that exist."""
    ranges: dict[Place, tuple[int, int]] = {}
    names = sorted({topic for topic, _ in places})
    for topic in client.metadata(names).topics if names else ():
        existing = {item.partition_index for item in topic.partitions if not item.error_code}
        numbers = [number for name, number in places if name == topic.name and number in existing]
        starts = list_offsets(client, topic, dict.fromkeys(numbers, EARLIEST))
        ends = list_offsets(client, topic, dict.fromkeys(numbers, LATEST))
        ranges |= {(topic.name or "", number): (starts[number], ends[number]) for number in numbers}
    return ranges


def _lag(committed: Mapping[Place, int], ranges: Mapping[Place, tuple[int, int]]) -> int:
    # A group whose offset was trimmed goes on at the start of the log.
    return sum(max(ranges[place][1] - max(offset, ranges[place][0]), 0) for place, offset in committed.items() if place in ranges)
