"""`penstock pipeline validate` and `run`: the file, then the broker, then Spark."""

from __future__ import annotations

import logging
import sys
from argparse import Namespace
from typing import TYPE_CHECKING, Final

from penstock.cli.exit_codes import ExitCode
from penstock.cli.failure import CommandError, as_command_error, usage
from penstock.cli.output import waiting
from penstock.core.errors import ConfigError, PenstockError, UnavailableError
from penstock.kafka.client import RequestRefusedError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.spark.pipelines.spec import PipelineSpec

DETAILS_CHARACTERS: Final = 2000


def validate(arguments: Namespace) -> int:
    """Check all that can be checked."""
    try:
        spec = _read(arguments.file)
        if not arguments.offline:
            from penstock.spark.pipelines.validation import check_broker, check_with_spark

            check_broker(spec)
            _tell(f"{arguments.file}: the file and the broker are valid; checking with Spark")
            check_with_spark(spec, _session(spec, arguments))
    except PenstockError as error:
        raise _failure(error) from error
    print(f"{arguments.file}: pipeline {spec.name} is valid")
    return ExitCode.OK


def run_pipeline(arguments: Namespace) -> int:
    """Run it to its end."""
    try:
        spec = _read(arguments.file)
        from penstock.spark.pipelines.progress import ProgressDisplay
        from penstock.spark.pipelines.runner import Runner
        from penstock.spark.pipelines.validation import check_broker

        check_broker(spec)
        runner = Runner(
            spec,
            lambda: _session(spec, arguments),
            ProgressDisplay(),
            once=arguments.once,
            takes_over=arguments.take_over,
            resets_state=arguments.reset_state,
        )
        runner.run()
    except PenstockError as error:
        raise _failure(error) from error
    except Exception as error:
        # Whatever Spark or a function of the user raised, after all attempts.
        from penstock.spark.pipelines.runner import first_line

        logging.getLogger(__name__).debug("the pipeline failed", exc_info=error)
        sentence, text = first_line(error), str(error).strip()
        details = "" if text in ("", sentence) else f"\n{text[:DETAILS_CHARACTERS]}"
        raise CommandError(f"the pipeline failed: {sentence}{details}") from error
    return ExitCode.OK


def _read(file: str) -> PipelineSpec:
    try:
        from penstock.spark.pipelines.spec_reading import read_spec
    except ImportError as error:
        raise usage(f"pipelines need Spark, and {error.name} is not installed: pip install 'penstock[spark]'") from error
    return read_spec(file)


def _session(spec: PipelineSpec, arguments: Namespace) -> SparkSession:
    from penstock.cli.spark_noise import without_start_noise
    from penstock.spark import session
    from penstock.spark.pipelines.spark_master import choose_master

    # Spark writes to standard error what a person at a terminal has no use for; errors come out another way.
    settings = {"spark.log.level": "ERROR", "spark.ui.showConsoleProgress": "false", **dict(arguments.conf)}
    master = choose_master(arguments.master, settings)
    keeps_classes = bool(getattr(arguments, "keep_classes", False))  # only `run` has it
    with waiting("starting Spark"), without_start_noise():
        return session(f"penstock pipeline {spec.name}", master=master, settings=settings, keeps_classes=keeps_classes)


def _failure(error: PenstockError) -> CommandError:
    if isinstance(error, RequestRefusedError):
        return as_command_error(error)
    if isinstance(error, ConfigError):
        return CommandError(str(error), ExitCode.USAGE)
    if isinstance(error, UnavailableError):
        return CommandError(str(error), ExitCode.NO_CONNECTION)
    return CommandError(str(error))


def _tell(sentence: str) -> None:
    print(sentence, file=sys.stderr)
