"""`penstock schema`: its subcommands and their options."""

from __future__ import annotations

import argparse

from penstock.cli.client_options import add_registry_option, add_sign_in_options, http_options
from penstock.cli.command_parser import CommandParser
from penstock.cli.failure import usage
from penstock.cli.output import Output


def parser() -> argparse.ArgumentParser:
    """A subparser for everything that can be done to schemas."""
    command = CommandParser(prog="penstock schema", description="List, show, register, check, delete and copy schemas.")
    actions = command.add_subparsers(dest="action", required=True, metavar="action")
    parent = http_options()

    def action(name: str, summary: str) -> argparse.ArgumentParser:
        command_parser: argparse.ArgumentParser = actions.add_parser(
            name, help=summary, description=summary[0].upper() + summary[1:] + ".", parents=[parent]
        )
        add_registry_option(command_parser)
        return command_parser

    listing = action("list", "list subjects with their latest versions")
    listing.add_argument("prefix", nargs="?", default="", metavar="PREFIX", help="only subjects that begin with this")
    shown = action("get", "print a schema: of a subject, or by its id")
    shown.add_argument("subject", nargs="?", metavar="SUBJECT")
    shown.add_argument("--version", default="latest", metavar="N", help="a version of the subject (default: latest)")
    shown.add_argument("--id", type=int, metavar="N", help="the id of the schema, as it is in messages")
    for name, summary in (
        ("register", "register a schema from a file, and print its id"),
        ("check", "check whether a schema from a file is compatible, and say what is not"),
    ):
        command_parser = action(name, summary)
        command_parser.add_argument("subject", metavar="SUBJECT")
        command_parser.add_argument("file", metavar="FILE", help="the schema; - for standard input")
        command_parser.add_argument(
            "--type",
            choices=("avro", "json", "protobuf"),
            help="its type (default: by the name of the file: .avsc, .json, .proto)",
        )
        command_parser.add_argument(
            "--reference",
            action="append",
            default=[],
            type=_reference,
            metavar="NAME=SUBJECT:VERSION",
            help="a schema that it refers to; may be repeated",
        )
        command_parser.add_argument("--normalize", action="store_true", help="compare and store it in its normal form")
    gone = action("delete", "delete a subject or one of its versions; it can be registered again, and its ids stay readable")
    gone.add_argument("subject", metavar="SUBJECT")
    gone.add_argument("--version", metavar="N", help="one version only")
    gone.add_argument("--permanent", action="store_true", help="for good, what was deleted before")
    _add_copying(
        action("export", "print all schemas, levels and modes as lines of JSON, or write them to a topic of Kafka"),
        action("import", "register schemas with the ids and versions they had, from an export or the topic of another registry"),
    )
    return command


def _add_copying(exported: argparse.ArgumentParser, imported: argparse.ArgumentParser) -> None:
    imported.add_argument("file", nargs="?", metavar="FILE", help="the exported lines; - for standard input")
    for made, what in ((exported, "write to"), (imported, "read from")):
        made.add_argument("--topic", metavar="NAME", help=f"the topic to {what}, in the form of Confluent's _schemas")
        made.add_argument("--kafka", metavar="HOST:PORT", help="the Kafka that has the topic (default: the node)")
        add_sign_in_options(made, "kafka", "use TLS to --kafka, and trust the certificates in this PEM file")


def run(argv: list[str]) -> int:
    """Carry out one subcommand."""
    arguments = parser().parse_args(argv)
    from penstock.cli.registry_api import make_registry
    from penstock.cli.schema_actions import ACTIONS

    if arguments.action == "get" and (arguments.subject is None) == (arguments.id is None):
        raise usage("name a subject, or a schema by --id")
    if arguments.action == "import" and (arguments.file is None) == (arguments.topic is None):
        raise usage("name a file of exported lines, or a topic by --topic")
    if arguments.action in ("export", "import") and arguments.topic is None and arguments.kafka is not None:
        raise usage("--kafka needs --topic")
    return ACTIONS[arguments.action](make_registry(arguments), arguments, Output.of(arguments))


def _reference(text: str) -> dict[str, object]:
    name, equals, rest = text.partition("=")
    subject, colon, version = rest.rpartition(":")
    if not (name and equals and subject and colon) or not version.isdigit():
        raise ValueError(text)
    return {"name": name, "subject": subject, "version": int(version)}


_reference.__name__ = "reference"
