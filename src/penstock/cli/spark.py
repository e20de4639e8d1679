"""`penstock spark`: what Spark clusters need of Penstock."""

from __future__ import annotations

import argparse
from pathlib import Path

from penstock.cli.command_parser import CommandParser
from penstock.cli.exit_codes import ExitCode
from penstock.cli.failure import CommandError, usage
from penstock.cli.output import waiting


def parser() -> argparse.ArgumentParser:
    """A subparser for what clusters need."""
    command = CommandParser(prog="penstock spark", description="Prepare Spark clusters for Penstock.")
    actions = command.add_subparsers(dest="action", required=True, metavar="action")
    summary = "write the archive with which executors read and write topics, for spark.archives"
    package = actions.add_parser("package", help=summary, description=f"{summary[0].upper()}{summary[1:]}.")
    package.add_argument(
        "file",
        nargs="?",
        default="penstock-package.tar.gz",
        metavar="FILE",
        help="the archive: .tar.gz, or .tar without compression (default: penstock-package.tar.gz)",
    )
    return command


def run(argv: list[str]) -> int:
    """Carry out one subcommand."""
    arguments = parser().parse_args(argv)
    path = Path(arguments.file)
    if not path.name.endswith((".tar.gz", ".tgz", ".tar")):
        raise usage(f"{path} must end with .tar.gz, .tgz or .tar: Spark tells by that how to unpack it")
    from penstock.spark.executor_package import NAME, PYTHON
    from penstock.spark.package import write_package

    try:
        with waiting("writing the package"):
            size = write_package(path)
    except OSError as error:
        raise CommandError(f"{path} cannot be written: {error.strerror or error}") from error
    print(f"{path}: {size / (1 << 20):,.0f} MiB")
    print("spark-submit with:")
    print(f"  --archives {path.resolve()}#{NAME}")
    print(f"  --conf spark.pyspark.python=./{NAME}/bin/{PYTHON} --conf spark.pyspark.driver.python=python3")
    return ExitCode.OK
