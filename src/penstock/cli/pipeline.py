"""`penstock pipeline`: its subcommands and their options."""

from __future__ import annotations

import argparse
from typing import Final

from penstock.cli.client_options import client_options, make_client, pair
from penstock.cli.output import Output

KINDS: Final = ("export", "load", "transform", "replay", "compact", "audit")


def parser() -> argparse.ArgumentParser:
    """A subparser for everything that can be done with pipelines."""
    made = argparse.ArgumentParser(prog="penstock pipeline", description="Declare, check, run and watch pipelines on Spark.")
    actions = made.add_subparsers(dest="action", required=True, metavar="action")

    def action(name: str, summary: str, *parents: argparse.ArgumentParser) -> argparse.ArgumentParser:
        return actions.add_parser(name, help=summary, description=summary[0].upper() + summary[1:] + ".", parents=parents)

    init = action("init", "write a file to begin with, every field explained")
    init.add_argument("kind", choices=KINDS, metavar="KIND", help=f"what it is to do: {', '.join(KINDS)}")
    init.add_argument("file", nargs="?", metavar="FILE", help="where to write it (default: KIND.yaml)")
    init.add_argument("--name", metavar="NAME", help="the pipeline's name (default: that of the file)")
    validate = action("validate", "check a file, against the broker and the target too, without running anything")
    validate.add_argument("file", metavar="FILE")
    validate.add_argument("--offline", action="store_true", help="look at the file only")
    _spark_options(validate)
    run = action("run", "run a pipeline until it is over or told to stop with SIGTERM or Ctrl-C")
    run.add_argument("file", metavar="FILE")
    run.add_argument("--once", action="store_true", help="end when all is done that is there now, whatever the file says")
    run.add_argument("--take-over", action="store_true", help="run although another copy seems alive; that one is fenced off")
    run.add_argument(
        "--reset-state", action="store_true", help="go on although the state of the query is lost, from what was committed last"
    )
    run.add_argument(
        "--keep-classes",
        action="store_true",
        help="keep Spark's classes as Java has laid them out: this run takes some seconds longer, later ones here start "
        "a third sooner",
    )
    _spark_options(run)
    parent = client_options()
    status = action("status", "show what a pipeline does and how far it has come", parent)
    status.add_argument("names", nargs="+", metavar="NAME")
    action("list", "list pipelines that have reported themselves to the broker", parent)
    return made


def _spark_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("--master", metavar="URL", help="the Spark cluster, such as spark://host:7077 (default: this machine)")
    command.add_argument(
        "--conf", action="append", type=pair, default=[], metavar="KEY=VALUE", help="a setting of Spark; may be repeated"
    )


def run(argv: list[str]) -> int:
    """Carry out one subcommand."""
    arguments = parser().parse_args(argv)
    if arguments.action in ("status", "list"):
        from penstock.cli.pipeline_states import ACTIONS

        with make_client(arguments) as client:
            return ACTIONS[arguments.action](client, arguments, Output(as_json=arguments.output == "json"))
    if arguments.action == "init":
        from penstock.cli.pipeline_templates import init

        return init(arguments)
    from penstock.cli.pipeline_actions import run_pipeline, validate

    return validate(arguments) if arguments.action == "validate" else run_pipeline(arguments)
