"""What executors lack is told in one sentence, found in the text that Spark passes on of an error in a task."""

from __future__ import annotations

from typing import cast

import pytest
from pyspark.sql import SparkSession

from penstock.spark.package import _LAUNCHER
from penstock.spark.pipelines.errors import ExecutorError
from penstock.spark.pipelines.runner import executor_fault, first_line, raise_if_final

TASK = """An error occurred while calling o98.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed 4 times
Traceback (most recent call last):
  File "/opt/spark/python/lib/pyspark.zip/pyspark/serializers.py", line 458, in loads
{}
\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:581)
"""
SENT = "unset PYSPARK_PYTHON and spark.pyspark.python to have it sent to them"


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ("ModuleNotFoundError: No module named 'penstock'", f"the executors do not have Penstock: {SENT}"),
        ("ModuleNotFoundError: No module named 'penstock.spark'", f"the executors do not have Penstock: {SENT}"),
        (
            "ImportError: the kernels of this installation are not compiled: install",
            f"Penstock is not compiled on the executors: {SENT}",
        ),
        (
            'java.io.IOException: Cannot run program "/opt/venv/bin/python": error=13, Permission denied',
            "the executors cannot start the Python /opt/venv/bin/python (Permission denied): name one",
        ),
        (
            'java.io.IOException: Cannot run program "python9": Exec failed, error: 2 (No such file or directory)',
            "the executors cannot start the Python python9 (No such file or directory): name one",
        ),
        (_LAUNCHER.partition('echo "')[2].partition('" >&2')[0].replace('" \\\n    "', " "), "this executor has no Python"),
    ],
)
def test_what_executors_lack_is_told_in_one_sentence_and_not_tried_again(said: str, sentence: str) -> None:
    error = RuntimeError(TASK.format(said))
    assert first_line(error).startswith(sentence)
    assert "\n" not in first_line(error)
    with pytest.raises(ExecutorError) as told:
        raise_if_final(error, cast("SparkSession", None))  # it is not asked
    assert str(told.value) == first_line(error)


def test_errors_of_tasks_that_have_everything_are_left_as_they_are() -> None:
    assert executor_fault(TASK.format("ModuleNotFoundError: No module named 'pens'")) is None
    assert executor_fault(TASK.format("ValueError: a value of the user")) is None


def test_an_error_of_a_call_of_java_is_told_by_its_cause() -> None:
    said = "An error occurred while calling o293.collectToPython.\n: java.lang.IllegalStateException: stopped\n\tat org.Spark"
    assert first_line(RuntimeError(said)) == "java.lang.IllegalStateException: stopped"
