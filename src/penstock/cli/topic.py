"""`penstock topic`: its subcommands and their options."""

from __future__ import annotations

import argparse

from penstock.cli.client_options import (
    client_options,
    http_options,
    make_client,
    partition,
    partition_count,
    replication_factor,
    topic_config,
)
from penstock.cli.command_parser import CommandParser
from penstock.cli.http_api import make_api
from penstock.cli.output import Output
from penstock.cli.positions import FORMS, position


def parser() -> argparse.ArgumentParser:
    """A subparser for everything that can be done to a topic."""
    command = CommandParser(prog="penstock topic", description="Create, list, describe, alter, copy, delete and trim topics.")
    actions = command.add_subparsers(dest="action", required=True, metavar="action")
    parent = client_options()

    def action(name: str, summary: str) -> argparse.ArgumentParser:
        return actions.add_parser(name, help=summary, description=summary[0].upper() + summary[1:] + ".", parents=[parent])

    _add_create_options(action("create", "create topics"))
    lister = action("list", "list topics with their size and retention")
    lister.add_argument("--prefix", default="", help="only names with this prefix")
    lister.add_argument("--internal", action="store_true", help="also list internal topics, such as __consumer_offsets")
    describe = action("describe", "show partitions, their offsets, and the configuration")
    describe.add_argument("names", nargs="+", metavar="NAME")
    describe.add_argument("--all-configs", action="store_true", help="also show values that are defaults")
    alter = action("alter", "change the configuration of a topic")
    alter.add_argument("name", metavar="NAME")
    _add_config(alter, "--set", "a configuration to set, such as retention.ms=3d; may be repeated")
    alter.add_argument(
        "--unset", action="append", default=[], metavar="KEY", help="a configuration to reset to its default; may be repeated"
    )
    delete = action("delete", "delete topics and all their messages")
    delete.add_argument("names", nargs="+", metavar="NAME")
    delete.add_argument("--if-exists", action="store_true", help="ignore topics that do not exist")
    _add_yes(delete)
    grow = action("add-partitions", "increase the number of partitions of a topic")
    grow.add_argument("name", metavar="NAME")
    grow.add_argument("--total", type=partition_count, required=True, metavar="N", help="the new total number of partitions")
    trim = action("trim", "delete the oldest messages of a topic")
    trim.add_argument("name", metavar="NAME")
    trim.add_argument(
        "--before", type=position, required=True, metavar="POSITION", help=f"delete messages before this position: {FORMS}"
    )
    trim.add_argument("--partition", type=partition, action="append", metavar="N", help="only this partition; may be repeated")
    _add_yes(trim)
    _add_copy(action("copy", "copy all messages of a topic to another one, each once, also to another cluster"))
    summary = "show which offsets of a damaged topic are lost, and discard them so that the rest can be served"
    repair = actions.add_parser(
        "repair", help=summary, description=summary[0].upper() + summary[1:] + ".", parents=[http_options()]
    )
    repair.add_argument("name", metavar="NAME")
    repair.add_argument("--dry-run", action="store_true", help="only show what is lost")
    _add_yes(repair)
    return command


def run(argv: list[str]) -> int:
    """Carry out one subcommand."""
    arguments = parser().parse_args(argv)
    if arguments.action == "repair":
        from penstock.cli.topic_repair import repair

        return repair(make_api(arguments), arguments, Output.of(arguments))
    if arguments.action == "copy":
        from penstock.cli.topic_copy import copy

        return copy(arguments, Output.of(arguments))
    from penstock.cli.topic_actions import ACTIONS

    with make_client(arguments) as client:
        return ACTIONS[arguments.action](client, arguments, Output.of(arguments))


def _add_create_options(create: argparse.ArgumentParser) -> None:
    create.add_argument("names", nargs="+", metavar="NAME")
    create.add_argument(
        "-p", "--partitions", type=partition_count, metavar="N", help="the number of partitions (default: default_partitions)"
    )
    create.add_argument(
        "--replication-factor",
        type=replication_factor,
        metavar="N",
        help="how many replicas clients are shown, at most the copies that the storage group keeps (default: so many)",
    )
    _add_config(create, "--config", "a topic configuration, such as retention.ms=3d or retention.bytes=10GiB; may be repeated")
    create.add_argument("--if-not-exists", action="store_true", help="ignore topics that already exist")


def _add_config(to: argparse.ArgumentParser, option: str, doc: str) -> None:
    to.add_argument(option, type=topic_config, action="append", default=[], metavar="KEY=VALUE", dest="configs", help=doc)


def _add_yes(to: argparse.ArgumentParser) -> None:
    to.add_argument("-y", "--yes", action="store_true", help="do not ask for confirmation")


def _add_copy(copy: argparse.ArgumentParser) -> None:
    copy.add_argument("name", metavar="SOURCE", help="the topic to read, of the server that the options name")
    copy.add_argument(
        "target",
        metavar="TARGET",
        help="the topic to write; created like the source if it does not exist. An interrupted copy goes on where it stopped",
    )
    copy.add_argument(
        "--to-profile", metavar="NAME", default=None, help="write to the server of this profile (default: the same server)"
    )
    copy.add_argument(
        "--to-bootstrap", metavar="HOST:PORT", default=None, help="write to the server at these addresses, without signing in"
    )
    copy.add_argument("-F", "--follow", action="store_true", help="go on with new messages, until Ctrl-C")
