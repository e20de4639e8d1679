"""What the subcommands of `penstock group` do."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable
from typing import Final, NamedTuple

from penstock.cli.exit_codes import ExitCode
from penstock.cli.failure import CommandError, as_command_error, usage
from penstock.cli.group_list import list_all
from penstock.cli.group_view import (
    NO_STATES,
    GroupView,
    Lag,
    Place,
    commit,
    coordinator,
    find_group,
    lags,
    positions,
)
from penstock.cli.kafka_client import CommandClient
from penstock.cli.output import Output, confirm
from penstock.cli.positions import EARLIEST, LATEST, Position, chosen_partitions, find_offsets, list_offsets
from penstock.kafka.client import RequestRefusedError
from penstock.kafka.protocol import errors, groups, keys

Action = Callable[[CommandClient, Namespace, Output], int]


class OffsetReset(NamedTuple):
    """Where a group stands in a partition, and where it shall."""

    topic: str
    partition: int
    was: int | None
    to: int


def describe(client: CommandClient, arguments: Namespace, output: Output) -> int:
    """Members with their partitions, and positions with how far behind they are."""
    described = []
    for name in arguments.names:
        node = coordinator(client, name)
        group = find_group(client, node, name)
        if group is None:
            raise _absent(name)
        assigned = {place for member in group.members for place in member.places}
        described.append((group, lags(client, positions(client, name), assigned)))
    if output.as_json:
        output.document([_document(group, group_lags) for group, group_lags in described])
        return ExitCode.OK
    for at, (group, group_lags) in enumerate(described):
        owners = {place: member.id for member in group.members for place in member.places}
        members = [(member.id, member.instance_id, member.client_id, member.host, len(member.places)) for member in group.members]
        rows = [
            (*lag[:5], None if lag.seconds is None else int(lag.seconds), owners.get((lag.topic, lag.partition)))
            for lag in group_lags
        ]
        if output.is_terminal:
            total = sum(lag.messages or 0 for lag in group_lags)
            output.line(("\n" if at else "") + f"{group.name}  {group.kind}  {group.state}  {total} messages lag")
            output.rows(_MEMBER_COLUMNS, members)
            output.rows(_LAG_COLUMNS, rows)
            continue
        output.rows(
            ("kind", "group", "protocol", "state", "assignor"),
            [("group", group.name, group.kind, group.state, group.assignor)],
        )
        output.rows(("kind", *_MEMBER_COLUMNS), [("member", *row) for row in members])
        output.rows(("kind", *_LAG_COLUMNS), [("position", *row) for row in rows])
    return ExitCode.OK


def reset(client: CommandClient, arguments: Namespace, output: Output) -> int:
    """Set positions, or show what they would be set to."""
    name = arguments.name
    node = coordinator(client, name)
    group = find_group(client, node, name)
    if group is not None and group.state not in NO_STATES:
        raise CommandError(f"group {name!r} has members, which would overwrite the reset ({group.state}); stop them first")
    moves = _moves(client, arguments, positions(client, name))
    if arguments.yes:
        commit(client, node, name, {(move.topic, move.partition): move.to for move in moves})
    if output.as_json:
        output.document({"group": name, "done": arguments.yes, "positions": [move._asdict() for move in moves]})
    else:
        output.rows(OffsetReset._fields, moves)
    if not arguments.yes:
        sys.stderr.write("nothing was changed; add --yes to reset these offsets\n")
    return ExitCode.OK


def delete(client: CommandClient, arguments: Namespace, output: Output) -> int:
    """Delete groups; each is tried, whatever becomes of the others."""
    if not confirm(f"Delete {', '.join(arguments.names)} and their committed offsets?", yes=arguments.yes):
        raise CommandError("nothing was deleted")
    failures: list[CommandError] = []
    gone = []
    for name in arguments.names:
        try:
            _delete(client, name)
        except RequestRefusedError as error:
            if error.error_code != errors.GROUP_ID_NOT_FOUND or not arguments.if_exists:
                failures.append(as_command_error(error))
            else:
                output.say(f"there is no group {name}")
        else:
            gone.append(name)
            output.say(f"deleted group {name}")
    if output.as_json:
        output.document({"deleted": gone})
    if failures:
        raise CommandError("; ".join(map(str, failures)), failures[0].exit_code)
    return ExitCode.OK


ACTIONS: Final[dict[str, Action]] = {"list": list_all, "describe": describe, "reset": reset, "delete": delete}

_MEMBER_COLUMNS: Final = ("member", "instance", "client", "host", "partitions")
_LAG_COLUMNS: Final = ("topic", "partition", "committed offset", "end offset", "lag", "lag s", "member")


def _moves(client: CommandClient, arguments: Namespace, committed: dict[Place, int]) -> list[OffsetReset]:
    """The new position in every partition that is asked for, within what the partition holds."""
    names = arguments.topic or sorted({topic for topic, _ in committed})
    if not names:
        raise CommandError(f"group {arguments.name!r} has no committed offsets; name the topics with --topic")
    if arguments.partition and len(set(names)) > 1:
        raise usage("--partition needs exactly one --topic")
    moves: list[OffsetReset] = []
    for name in dict.fromkeys(names):
        topic = client.topic(name)
        numbers = chosen_partitions(topic, arguments.partition)
        if not arguments.topic and not arguments.partition:
            numbers = [number for number in numbers if (name, number) in committed]
        if arguments.shift is not None:
            numbers = [number for number in numbers if (name, number) in committed]
            wanted = {number: Position(offset=max(committed[name, number] + arguments.shift, 0)) for number in numbers}
        else:
            wanted = dict.fromkeys(numbers, arguments.to)
        offsets = find_offsets(client, topic, wanted)
        starts = list_offsets(client, topic, dict.fromkeys(numbers, EARLIEST))
        ends = list_offsets(client, topic, dict.fromkeys(numbers, LATEST))
        moves += (
            OffsetReset(name, number, committed.get((name, number)), min(max(offsets[number], starts[number]), ends[number]))
            for number in numbers
        )
    if not moves:
        raise CommandError(f"group {arguments.name!r} has no committed offset to shift; set one with --to")
    return moves


def _delete(client: CommandClient, name: str) -> None:
    node = coordinator(client, name)

    def ask() -> None:
        request = groups.DeleteGroupsRequest(groups_names=[name])
        (result,) = client.node_call(node, keys.DELETE_GROUPS, request, groups.DeleteGroupsResponse).results
        if result.error_code == errors.GROUP_ID_NOT_FOUND:
            raise _absent(name)
        if result.error_code == errors.NON_EMPTY_GROUP:
            raise RequestRefusedError(f"group {name!r}", result.error_code, "it has members; stop them first")
        if result.error_code:
            raise RequestRefusedError(f"group {name!r}", result.error_code)

    client.retry(ask)


def _absent(name: str) -> RequestRefusedError:
    message = "there is no such group; `penstock group list` lists the groups"
    return RequestRefusedError(f"group {name!r}", errors.GROUP_ID_NOT_FOUND, message)


def _document(group: GroupView, group_lags: list[Lag]) -> dict[str, object]:
    owners = {place: member.id for member in group.members for place in member.places}
    return {
        "name": group.name,
        "kind": group.kind,
        "state": group.state,
        "assignor": group.assignor,
        "lag": sum(lag.messages or 0 for lag in group_lags),
        "lag_s": max((lag.seconds for lag in group_lags if lag.seconds is not None), default=None),
        "members": [
            {
                "id": member.id,
                "instance_id": member.instance_id,
                "client_id": member.client_id,
                "host": member.host,
                "partitions": [{"topic": topic, "partition": number} for topic, number in member.places],
            }
            for member in group.members
        ],
        "positions": [
            {
                "topic": lag.topic,
                "partition": lag.partition,
                "position": lag.position,
                "end": lag.end,
                "lag": lag.messages,
                "lag_s": lag.seconds,
                "member": owners.get((lag.topic, lag.partition)),
            }
            for lag in group_lags
        ],
    }
