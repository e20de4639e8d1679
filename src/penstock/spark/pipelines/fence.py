"""The record of a pipeline in the broker: its current run and its progress. A run that finds another one there stops.

The record's key is `pipeline/NAME`, its value JSON: {"run": …, "host": …, "started_ms": …, "batch": …, "offsets": …, "ids": …,
"reset": …}.
It is changed only by compare-and-set; for targets that are topics, atomically with the rows.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final
from uuid import uuid4

from penstock.kafka.client import BlockingClient, OpenTransaction, RequestRefusedError
from penstock.kafka.protocol import errors
from penstock.spark.commit_record import CommitRecord
from penstock.spark.pipelines.broker_options import as_in_file, writing_options
from penstock.spark.pipelines.errors import PipelineFencedError
from penstock.spark.pipelines.spec import PipelineSpec
from penstock.spark.write_options import WriteOptions, write_options

# Runs that this process has started: when one of their jobs is recreated, it must not take the record back from another run.
_begun: Final[set[str]] = set()


def target_options(spec: PipelineSpec, topic: str | None = None) -> WriteOptions:
    """The options of a write by the pipeline."""
    given = {**writing_options(spec.options), "kafka.bootstrap.servers": spec.brokers}
    if topic is not None:
        given["topic"] = topic
    options = write_options(given)
    return replace(options, client=as_in_file(options.client))


class Fence:
    """A pipeline's record, held by one run."""

    def __init__(self, spec: PipelineSpec, client: BlockingClient) -> None:
        self.name = spec.name
        self.run = spec.run.id or uuid4().hex
        self._reset = spec.run.reset
        key = f"pipeline/{spec.name}"
        self.prefix = f"{key}/{self.run[:12]}/"  # of the ids of this run's transactions
        self.client = client
        self._record = CommitRecord(client, key, f"{key}/")
        self._content: dict[str, Any] = {}
        self._is_kept = True

    @property
    def content(self) -> Mapping[str, Any]:
        """The last known value of the record."""
        return self._content

    def take(self) -> Mapping[str, Any]:
        """Write this run's id to the record, which fences every other run. Returns the previous value, without its progress if
        the pipeline is to start over. A Kafka broker has no records: nothing is stored, and an empty value returned."""
        self._is_kept = self.client.commits_together()
        if not self._is_kept:
            return {}
        while True:
            self._read()
            before = dict(self._content)
            if self.run in _begun and before.get("run") != self.run:
                raise self._fenced()
            if self._reset and before.get("reset") != self._reset:
                before = {"reset": self._reset}  # written with the run's id, so it is done once
            own = {"run": self.run, "host": socket.gethostname(), "pid": os.getpid(), "started_ms": int(time.time() * 1000)}
            try:
                self._set([], {**before, **own})
            except RequestRefusedError as error:
                if error.error_code != errors.INVALID_UPDATE_VERSION:
                    raise
                continue  # another run changed it: read it again
            _begun.add(self.run)
            self.abort_left_behind()  # this run has no transactions yet
            return before

    def commit(self, transactions: Iterable[OpenTransaction], changes: Mapping[str, Any]) -> None:
        """Commit the transactions and change the record atomically. Raises PipelineFencedError if another run owns the
        record."""
        transactions = list(transactions)
        content = {**self._content, **changes, "batch": int(self._content.get("batch", 0)) + 1}
        try:
            self._set(transactions, content)
        except RequestRefusedError as error:
            self.check()
            if error.error_code == errors.INVALID_UPDATE_VERSION:
                raise self._fenced() from error
            raise

    def check(self) -> None:
        """Raise PipelineFencedError if another run owns the record."""
        if not self._is_kept:
            return
        stored, content = self._record.value, self._content
        self._read()
        if self._content.get("run") not in (None, self.run):
            raise self._fenced()
        self._record.value, self._content = stored, content

    def abort_left_behind(self) -> None:
        """Abort open transactions of failed attempts: consumers wait for them to end."""
        self._record.abort_left_behind()

    def _read(self) -> None:
        stored = self._record.read()
        self._content = json.loads(stored) if stored else {}

    def _set(self, transactions: list[OpenTransaction], content: dict[str, Any]) -> None:
        self._record.commit(transactions, json.dumps(content, separators=(",", ":"), sort_keys=True).encode())
        self._content = content

    def _fenced(self) -> PipelineFencedError:
        other = self._content
        started = datetime.fromtimestamp(int(other.get("started_ms", 0)) / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        return PipelineFencedError(
            f"another copy of pipeline {self.name!r}, started on {other.get('host', '?')} at {started}, has taken over; this one "
            "stops, and nothing that it had not committed is seen. Keep one of them, or give one another name"
        )
