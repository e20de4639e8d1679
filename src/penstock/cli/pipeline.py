"""`penstock pipeline`: its subcommands and their options."""

from __future__ import annotations

import argparse
from typing import Final

from penstock.cli.client_options import client_options, make_client, pair
from penstock.cli.command_parser import CommandParser
from penstock.cli.output import Output

KINDS: Final = ("export", "load", "transform", "replay", "compact", "audit")


def parser() -> argparse.ArgumentParser:
    """A subparser for everything that can be done with pipelines."""
    command = CommandParser(prog="penstock pipeline", description="Create, validate, run and watch Spark pipelines.")
    actions = command.add_subparsers(dest="action", required=True, metavar="action")

    def action(name: str, summary: str, *parents: CommandParser) -> argparse.ArgumentParser:
        return actions.add_parser(name, help=summary, description=summary[0].upper() + summary[1:] + ".", parents=parents)

    init = action("init", "write a template file that explains every field")
    init.add_argument("kind", choices=KINDS, metavar="KIND", help=f"the kind of pipeline: {', '.join(KINDS)}")
    init.add_argument("file", nargs="?", metavar="FILE", help="the file to write (default: KIND.yaml)")
    init.add_argument("--name", metavar="NAME", help="the pipeline's name (default: the name of the file)")
    validate = action("validate", "check a file, also against the broker and the target, without running it")
    validate.add_argument("file", metavar="FILE")
    validate.add_argument("--offline", action="store_true", help="check only the file")
    _spark_options(validate)
    run = action("run", "run a pipeline until it ends, or until SIGTERM or Ctrl-C")
    run.add_argument("file", metavar="FILE")
    run.add_argument("--once", action="store_true", help="process what exists now, then exit, whatever the trigger in the file")
    run.add_argument("--take-over", action="store_true", help="start although another instance seems to be running, and fence it")
    run.add_argument(
        "--reset-state", action="store_true", help="continue from the last commit although the query's state is lost"
    )
    run.add_argument(
        "--keep-classes",
        action="store_true",
        help="write an archive of Spark's loaded classes: this run takes some seconds longer, later runs here start a "
        "third faster",
    )
    _spark_options(run)
    parent = client_options()
    status = action("status", "show the state and progress of a pipeline", parent)
    status.add_argument("names", nargs="+", metavar="NAME")
    action("list", "list the pipelines that have run against this broker", parent)
    return command


def _spark_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("--master", metavar="URL", help="the Spark cluster, such as spark://host:7077 (default: this machine)")
    command.add_argument(
        "--conf", action="append", type=pair, default=[], metavar="KEY=VALUE", help="a Spark setting; may be repeated"
    )


def run(argv: list[str]) -> int:
    """Carry out one subcommand."""
    arguments = parser().parse_args(argv)
    if arguments.action in ("status", "list"):
        from penstock.cli.pipeline_states import ACTIONS

        with make_client(arguments) as client:
            return ACTIONS[arguments.action](client, arguments, Output.of(arguments))
    if arguments.action == "init":
        from penstock.cli.pipeline_templates import init

        return init(arguments)
    from penstock.cli.pipeline_actions import run_pipeline, validate

    return validate(arguments) if arguments.action == "validate" else run_pipeline(arguments)
