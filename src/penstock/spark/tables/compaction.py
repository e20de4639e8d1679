"""Merges small files: those of a partition that fit into one file are rewritten by one task."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from penstock.spark.tables.partitioning import Values
from penstock.spark.tables.table import Table, TableReader
from penstock.spark.tables.task_writer import DataFile, TaskWriter
from penstock.spark.tables.tasks import run_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FULL_ENOUGH: Final = 0.75  # of the target file size: rewriting such a file gains little
FILES_MIN: Final = 2


def choose_files(files: Iterable[DataFile], file_bytes: int) -> list[list[DataFile]]:
    """Groups of files to merge."""
    waiting: dict[Values, list[DataFile]] = {}
    groups = []
    for file in sorted(files, key=lambda candidate: candidate.path):
        if file.size >= file_bytes * FULL_ENOUGH:
            continue
        group = waiting.setdefault(file.values, [])
        if group and sum(file.size for file in group) + file.size > file_bytes:
            groups.append(group)
            group = waiting[file.values] = []
        group.append(file)
    groups += waiting.values()
    return [group for group in groups if len(group) >= FILES_MIN]


def compact_small_files(spark: SparkSession, table: Table) -> tuple[list[DataFile], list[DataFile]]:
    """Rewrite small files. Returns the new files and those they replace, for a commit."""
    table.refresh()
    groups = choose_files(table.data_files(), table.spec.compact_file_bytes)
    rewritten = run_tasks(spark, RewriteTask(table.reader(), table.writer()), groups)
    return [file for files in rewritten for file in files], [file for group in groups for file in group]


@dataclass(frozen=True)
class RewriteTask:
    """Reads some files and writes their rows to new ones. It is pickled to tasks."""

    reader: TableReader
    writer: TaskWriter

    def __call__(self, number: int, files: list[DataFile]) -> list[DataFile]:
        return self.writer.write((batch for file in files for batch in self.reader.read(file)), f"compact-{number:05d}")
