"""Runs a pipeline: steps its job as the trigger says, retries transient failures, until it ends or is stopped."""

from __future__ import annotations

import getpass
import logging
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from penstock.core.errors import CorruptionError, FencedError, PenstockError
from penstock.kafka.client import BlockingClient
from penstock.spark.errors import DataLossError
from penstock.spark.pipelines.errors import (
    FINAL,
    AlreadyRunningError,
    BadRowError,
    ChangedSubjectError,
    ExecutorError,
    SparkLostError,
    TooManyDeadLettersError,
)
from penstock.spark.pipelines.fence import target_options
from penstock.spark.pipelines.job import BatchResult, CheckableJob, Job
from penstock.spark.pipelines.kinds import make_job
from penstock.spark.pipelines.progress import ProgressDisplay, RateMeter, figures
from penstock.spark.pipelines.spec import PipelineSpec, RunSpec, TriggerSpec
from penstock.spark.pipelines.state_topic import StateReport, is_alive, read_states
from penstock.spark.pipelines.subject_following import followed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

IDLE_S: Final = 0.05
IDLE_MAX_S: Final = 1.0
BACKOFF_MAX_S: Final = 300.0
DEAD_LETTERS_MIN: Final = 10  # fewer say nothing about a share
NEVER_RETRIED: Final = (*FINAL, DataLossError, CorruptionError)
# Spark passes on only the text of errors raised in tasks.
FINAL_IN_TASKS: Final = ("RowError", "OptionError", "AccessDeniedError")
_OURS: Final = re.compile(r"penstock\.[a-z_.]+\.(\w+Error): (.+)")
_SENDING: Final = "unset PYSPARK_PYTHON and spark.pyspark.python to have it sent to them, or install the same wheel there"
# What tasks say where Penstock is not installed, or not for the Python that runs them, and what that means.
_EXECUTOR_FAULTS: Final = (
    (
        re.compile(r"No module named '(penstock|pyspark_penstock|pyarrow)|PyArrow.* must be installed"),
        f"the executors do not have Penstock: {_SENDING}",
    ),
    (re.compile(r"the kernels of this installation are not compiled"), f"Penstock is not compiled on the executors: {_SENDING}"),
    (re.compile(r"this executor has no Python .*spark\.executorEnv\.PENSTOCK_PYTHON"), None),
    (
        re.compile(r'Cannot run program "(?P<program>[^"]+)": [^\n]*?(?P<why>Permission denied|No such file or directory)'),
        f"the executors cannot start the Python {{program}} ({{why}}): name one that they and the driver have, or {_SENDING}",
    ),
)
_CALL: Final = "An error occurred while calling "  # of a method in Java; what happened there is in the next line
# Kinds that end on their own, whatever the trigger.
ENDING: Final = frozenset({"replay", "audit"})

_log = logging.getLogger(__name__)


class Runner:
    """One run of one pipeline."""

    def __init__(
        self,
        spec: PipelineSpec,
        open_session: Callable[[], SparkSession],
        display: ProgressDisplay,
        *,
        once: bool = False,
        takes_over: bool = False,
        resets_state: bool = False,
        reset: str = "",
    ) -> None:
        trigger = TriggerSpec(once=True) if once else spec.trigger
        self.spec = replace(spec, trigger=trigger, run=RunSpec(uuid4().hex, resets_state, reset))
        self._open_session = open_session
        self._display = display
        self._takes_over = takes_over
        self._stopping = threading.Event()
        self._report = StateReport(target_options(spec).client, self._first_state())
        self._speed = RateMeter()
        self._totals = BatchResult(0, 0)
        self._batches = 0
        self._lag = 0
        self._handlers: dict[signal.Signals, Any] = {}

    @property
    def state(self) -> Mapping[str, Any]:
        """The last reported state."""
        return self._report.state

    def stop(self) -> None:
        """Stop after the batch in flight."""
        self._stopping.set()

    def run(self) -> None:
        """Run until the pipeline ends or is stopped. Raises the error that ends it otherwise."""
        self._refuse_second_copy()
        job = make_job(self.spec)
        for line in job.plan():
            self._display.say(line)
        with self._report:
            try:
                self._report.tell(state="starting", plan=job.plan())
                self._run(job)
            except FencedError as error:
                self._end("fenced", str(error))
                raise
            except KeyboardInterrupt:
                self._end("stopped", None)
                raise
            except BaseException as error:
                self._end("failed", str(error) or type(error).__name__)
                raise
            finally:
                self._restore_signals()
            self._end("stopped" if self._stopping.is_set() else "finished", None)

    def _run(self, job: Job) -> None:
        spark = self._open_session()
        self._listen_to_signals()
        self._report.tell(spark_ui=_ui_of(spark))
        if isinstance(job, CheckableJob):
            check_or_close(job, spark)
        failures = 0
        while not self._stopping.is_set():
            batches = self._batches
            try:
                with closing(job):
                    job.start(spark)
                    self._report.tell(state="running")
                    self._work(job)
                return
            except NEVER_RETRIED:
                raise
            except ChangedSubjectError:
                self._follow_subjects()
            except Exception as error:
                raise_if_final(error, spark)
                failures = 1 if self._batches > batches else failures + 1
                if self._stopping.is_set():
                    return
                if failures > self.spec.restart.attempts:
                    raise
                self._wait_to_restart(error, failures)
            job = make_job(self.spec)

    def _follow_subjects(self) -> None:
        """Go on with the columns that the subjects of the schema registry have now."""
        self.spec = followed(self.spec)
        self._display.say("the schema registry has a new schema of the values; going on with its columns")

    def _work(self, job: Job) -> None:
        idle_s = IDLE_S
        while not self._stopping.is_set():
            began = time.monotonic()
            done = job.step()
            self._lag = job.lag_rows()
            if done is not None:
                idle_s = IDLE_S
                self._count(done, time.monotonic() - began)
                continue
            if self.spec.trigger.once or self.spec.kind in ENDING or self.spec.source.table is not None:
                return
            self._show()
            if self.spec.trigger.every_s is not None:
                self._report.tell(state="waiting", lag_rows=self._lag, rows_per_s=0)
                self._stopping.wait(max(self.spec.trigger.every_s - (time.monotonic() - began), 0.0))
                self._report.tell(state="running")
            else:
                self._stopping.wait(idle_s)
                idle_s = min(idle_s * 2, IDLE_MAX_S)

    def _count(self, done: BatchResult, took_s: float) -> None:
        self._totals += done
        self._batches += 1
        self._speed.add(done.rows_read)
        self._report.tell(
            batches=self._batches,
            rows_read=self._totals.rows_read,
            rows_written=self._totals.rows_written,
            dead_letters=self._totals.dead_letters,
            late_rows=self._totals.late_rows,
            empty_rows=self._totals.empty_rows,
            rows_per_s=round(self._speed.rows_per_s()),
            last_batch_ms=round(took_s * 1000),
            lag_rows=self._lag,
            last_error=None,
        )
        self._show()
        self._check_dead_letters()

    def _check_dead_letters(self) -> None:
        """Raise TooManyDeadLettersError if so many rows are bad that the file or the producer must be wrong."""
        letters, read, share_max = self._totals.dead_letters, self._totals.rows_read, self.spec.dead_letters.share_max
        if letters >= DEAD_LETTERS_MIN and letters > share_max * read:
            first = f"; the first is {self._totals.first_dead}" if self._totals.first_dead else ""
            raise TooManyDeadLettersError(
                f"{letters:,} of {read:,} rows of this run are dead letters, more than {share_max:.0%}{first}. They are in "
                f"{self.spec.dead_letters}. Correct source.value, or allow more with dead_letters.share_max"
            )

    def _show(self, *, is_last: bool = False) -> None:
        line = figures(self._batches, self._totals, self._speed.rows_per_s(), self._lag)
        self._display.show(line, is_last=is_last)

    def _wait_to_restart(self, error: Exception, failures: int) -> None:
        pause_s = min(self.spec.restart.backoff_s * 2 ** (failures - 1), BACKOFF_MAX_S)
        self._report.tell(state="restarting", last_error=first_line(error))
        self._display.say(
            f"failed: {first_line(error)}; trying again in {pause_s:g} s ({failures} of {self.spec.restart.attempts})"
        )
        _log.debug("what failed", exc_info=error)
        self._stopping.wait(pause_s)

    def _end(self, state: str, reason: str | None) -> None:
        self._show(is_last=True)
        self._report.tell(state=state, last_error=reason, rows_per_s=0, lag_rows=self._lag)

    def _refuse_second_copy(self) -> None:
        if self._takes_over:
            return
        with closing(BlockingClient(target_options(self.spec).client)) as client:
            other = read_states(client).get(self.spec.name)
        if other is not None and is_alive(other, int(time.time() * 1000)) and not _is_dead_here(other):
            raise AlreadyRunningError(
                f"pipeline {self.spec.name!r} runs already, on {other.get('host')} as process {other.get('pid')}; stop that one, "
                "or give --take-over to fence it off"
            )

    def _listen_to_signals(self) -> None:
        """Set signal handlers. Call it after Spark has started: Spark sets one that would abort the batch in flight."""
        if threading.current_thread() is not threading.main_thread():
            return

        def stop(number: int, _frame: object) -> None:
            if self._stopping.is_set():
                raise KeyboardInterrupt
            self._stopping.set()
            self._display.say(f"{signal.Signals(number).name}: stopping after the current batch; repeat to stop at once")

        for number in (signal.SIGTERM, signal.SIGINT):
            self._handlers[number] = signal.signal(number, stop)

    def _restore_signals(self) -> None:
        while self._handlers:
            number, handler = self._handlers.popitem()
            signal.signal(number, handler)

    def _first_state(self) -> dict[str, Any]:
        spec = self.spec
        user = os.environ.get("USER", "")
        with suppress(OSError, KeyError):
            user = getpass.getuser()
        return {
            "name": spec.name,
            "kind": spec.kind,
            "state": "",
            "run": spec.run.id,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "user": user,
            "file": spec.origin.file,
            "source": str(spec.source),
            "target": str(spec.target),
            "plan": [],
            "trigger": str(spec.trigger),
            "started_ms": int(time.time() * 1000),
            "updated_ms": 0,
            **dict.fromkeys(
                (
                    "batches",
                    "rows_read",
                    "rows_written",
                    "dead_letters",
                    "late_rows",
                    "empty_rows",
                    "rows_per_s",
                    "last_batch_ms",
                    "lag_rows",
                ),
                0,
            ),
            "last_error": None,
            "spark_ui": None,
        }


def check_or_close(job: CheckableJob, spark: SparkSession) -> None:
    """Validate a job, and close it if that fails."""
    try:
        job.check(spark)
    except BaseException:
        job.close()
        raise


def first_line(error: BaseException) -> str:
    """The error in one line; for an error in a task, the original one."""
    fault = executor_fault(str(error))
    if fault is not None:
        return fault
    own = _OURS.search(str(error))
    if own is not None and not isinstance(error, PenstockError):
        return own[2].strip()
    lines = [line.strip() for line in str(error).split("JVM stacktrace")[0].splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    if lines[0].startswith(_CALL) and len(lines) > 1:
        lines[:2] = [lines[1].removeprefix(": ")]
    return lines[-1] if any(line.startswith("Traceback (most") for line in lines) else lines[0]


def executor_fault(text: str) -> str | None:
    """What executors lack by the text of an error in a task, in one sentence; None if it is something else."""
    for pattern, sentence in _EXECUTOR_FAULTS:
        said = pattern.search(text)
        if said is not None:
            return said[0] if sentence is None else sentence.format(**said.groupdict())
    return None


def raise_if_final(error: BaseException, spark: SparkSession) -> None:
    """Raise the cause of an error if a retry cannot fix it."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, NEVER_RETRIED):
            raise seen from error
        seen = seen.__cause__ or seen.__context__
    fault = executor_fault(str(error))
    if fault is not None:
        raise ExecutorError(fault) from error
    own = _OURS.search(str(error))
    if own is not None and own[1] in FINAL_IN_TASKS:
        raise BadRowError(own[2].strip()) from error
    if not _is_there(spark):
        raise SparkLostError(
            "Spark has ended, perhaps for lack of memory (--conf spark.driver.memory=4g); nothing is lost: run the pipeline again"
        ) from error


def _is_there(spark: SparkSession) -> bool:
    from py4j.protocol import Py4JError

    try:
        return not spark.sparkContext._jsc.sc().isStopped()
    except (Py4JError, OSError, AttributeError):
        return False


def _is_dead_here(state: dict[str, Any]) -> bool:
    """Whether the reporting process ran on this machine and is dead."""
    if state.get("host") != socket.gethostname():
        return False
    try:
        os.kill(int(state.get("pid", 0)), 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return int(state.get("pid", 0)) == os.getpid()


def _ui_of(spark: SparkSession) -> str | None:
    return getattr(getattr(spark, "sparkContext", None), "uiWebUrl", None)
