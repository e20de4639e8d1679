"""`penstock pipeline`: its subcommands and their options."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Final

from penstock.cli.client_options import client_options, http_options, make_client, pair
from penstock.cli.command_parser import CommandParser
from penstock.cli.output import Output

DEPLOYMENT_ACTIONS: Final = ("deploy", "pause", "resume", "stop", "undeploy", "replay-dead-letters", "logs")
KINDS: Final = ("export", "load", "transform", "replay", "compact", "audit")


def parser() -> argparse.ArgumentParser:
    """A subparser for everything that can be done with pipelines."""
    command = CommandParser(prog="penstock pipeline", description="Create, validate, run, deploy and watch Spark pipelines.")
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
        action=argparse.BooleanOptionalAction,
        default=True,
        help="after the run, make an archive of Spark's loaded classes in the background, with which later runs on this machine "
        "start faster (170 MB in the temporary directory)",
    )
    _spark_options(run)
    parent = client_options()
    status = action("status", "show the state and progress of a pipeline", parent)
    status.add_argument("names", nargs="+", metavar="NAME")
    _deployment_actions(action)
    return command


def _deployment_actions(action: Callable[..., argparse.ArgumentParser]) -> None:
    """What is done with pipelines that a node has in its care."""
    parent = http_options()
    listed = action("list", "list the pipelines that have run against this broker, or those that are deployed on it", parent)
    listed.add_argument("--deployed", action="store_true", help="those that are deployed, and how the node keeps them running")
    deploy = action("deploy", "have the node run a pipeline from now on, or upgrade the one of its name", parent)
    deploy.add_argument("file", metavar="FILE")
    deploy.add_argument(
        "--with",
        dest="more",
        action="append",
        default=[],
        metavar="FILE",
        help="another file that it needs, below its directory; may be repeated. Those that it names are sent anyway",
    )
    deploy.add_argument("--application", metavar="NAME", help="share one Spark application with the other pipelines of this name")
    deploy.add_argument("--reset", action="store_true", help="start over: forget offsets and state, and read from source.start")
    deploy.add_argument("--take-over", action="store_true", help="fence an instance that was started with `pipeline run`")
    _spark_options(deploy)
    for name, summary in (
        ("pause", "stop a deployed pipeline after its current batch; Spark keeps running, so that it resumes at once"),
        ("resume", "run a deployed pipeline again that is paused, stopped, finished or failed"),
        ("stop", "stop a deployed pipeline after its current batch, and Spark with it"),
        ("undeploy", "stop a deployed pipeline and forget it; its target and its offsets stay"),
        ("replay-dead-letters", "send the dead letters of a deployed pipeline back to their topics, each once"),
    ):
        action(name, summary, parent).add_argument("name", metavar="NAME")
    logs = action("logs", "print the log of a deployed pipeline", parent)
    logs.add_argument("name", metavar="NAME")
    logs.add_argument("-f", "--follow", action="store_true", help="print more as it comes, until interrupted")


def _spark_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("--master", metavar="URL", help="the Spark cluster, such as spark://host:7077 (default: this machine)")
    command.add_argument(
        "--conf", action="append", type=pair, default=[], metavar="KEY=VALUE", help="a Spark setting; may be repeated"
    )


def run(argv: list[str]) -> int:
    """Carry out one subcommand."""
    arguments = parser().parse_args(argv)
    if arguments.action in DEPLOYMENT_ACTIONS or getattr(arguments, "deployed", False):
        from penstock.cli.deployments import ACTIONS as DEPLOYED
        from penstock.cli.http_api import make_api

        return DEPLOYED[arguments.action](make_api(arguments), arguments, Output.of(arguments))
    if arguments.action in ("status", "list"):
        from penstock.cli.pipeline_states import ACTIONS

        with make_client(arguments) as client:
            return ACTIONS[arguments.action](client, arguments, Output.of(arguments))
    if arguments.action == "init":
        from penstock.cli.pipeline_templates import init

        return init(arguments)
    from penstock.cli.pipeline_actions import run_pipeline, validate

    return validate(arguments) if arguments.action == "validate" else run_pipeline(arguments)
