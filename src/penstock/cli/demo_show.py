"""The course of the demo: a broker, a sender, a slow reader and a Spark pipeline, a kill -9 in the middle, checks at the end."""

from __future__ import annotations

import signal
import sys
import time
from argparse import Namespace
from pathlib import Path
from random import Random
from typing import Final

from penstock.cli.demo_checks import Verdict, check_positions, check_table, check_topic, check_totals
from penstock.cli.demo_node import DemoNode
from penstock.cli.demo_spark import DemoSpark, missing
from penstock.cli.demo_traffic import SLOW_SHARE, TICK_S, Sender, SlowReader, wait_until
from penstock.cli.failure import CommandError
from penstock.cli.interrupts import interrupt_once
from penstock.cli.kafka_client import CommandClient
from penstock.kafka.client import RequestRefusedError
from penstock.kafka.protocol import errors, keys, topics

EVENTS, TOTALS, GROUP = "shop.events", "shop.totals", "slow-reader"
PARTITIONS: Final = {EVENTS: 3, TOTALS: 1}
SPARK_START_S: Final = 60.0
WINDOWS_S: Final = 60.0
LOOK_S: Final = 2.0
AWAY_S: Final = 0.3
"How long the broker stays down."


class Show:
    """One run of the demo."""

    def __init__(self, folder: Path, options: Namespace) -> None:
        self._folder = folder
        self._options = options
        self._node = DemoNode(folder)
        self._spark: DemoSpark | None = None
        self._lines = Lines()
        self._verdicts: list[Verdict] = []
        self._looked = 0.0

    def run(self) -> bool:
        """Everything in its turn; whether all of it held."""
        # Whichever way it is told to end, it takes its broker and Spark with it.
        interrupt_once((signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
        self._lines.text("Penstock demo: a web shop's events through a broker, Spark and a table, with a kill -9 on the way.\n")
        try:
            return self._run()
        finally:
            self._lines.clear()
            if self._spark is not None:
                self._spark.stop()
            self._node.stop()

    def _run(self) -> bool:
        took = self._node.start()
        self._lines.act("broker", f"ready after {took:.1f} s: Kafka clients at {self._node.bootstrap}")
        self._lines.act("console", self._node.console)
        present = set(PARTITIONS) - set(_make_topics(self._node.bootstrap))
        if present:
            raise CommandError(f"a demo has run in this directory before: it has {', '.join(present)}; give another --dir")
        sender, reader = self._start_traffic()
        self._lines.act(
            "events", f"{self._options.rate:,} events per second, acknowledged after fsync; {GROUP} is slower than that"
        )
        self._start_spark()
        self._say_what_to_paste()
        try:
            self._let_it_run(sender, reader)
            self._check(sender, reader)
            if self._options.keep:
                self._stay(sender, reader)
        finally:
            sender.end()
            reader.end()
        return all(verdict.held for verdict in self._verdicts)

    def _start_traffic(self) -> tuple[Sender, SlowReader]:
        bootstrap, rate = self._node.bootstrap, self._options.rate
        sender = Sender(bootstrap, EVENTS, rate, Random(1))
        reader = SlowReader(bootstrap, EVENTS, GROUP, rate * SLOW_SHARE, Random())
        sender.start()
        reader.start()
        return sender, reader

    def _start_spark(self) -> None:
        reason = "--no-spark was given" if self._options.no_spark else missing()
        if reason is not None:
            self._lines.act("spark", f"skipped: {reason}")
            return
        self._spark = DemoSpark(self._node.bootstrap, EVENTS, TOTALS, self._folder)
        self._lines.act(
            "spark", f"starts two pipelines: totals by window into {TOTALS}, all events into a {self._spark.format} table"
        )

    def _let_it_run(self, sender: Sender, reader: SlowReader) -> None:
        """Half of the time, or until Spark is at work; then the kill; then the other half."""
        began = time.monotonic()
        half = self._options.seconds / 2
        while (past := time.monotonic() - began) < half or (self._spark_is_starting() and past < SPARK_START_S):
            self._raise_failures(sender, reader)
            self._watch(sender, reader)
        self._kill(sender)
        began = time.monotonic()
        while time.monotonic() - began < half:
            self._raise_failures(sender, reader)
            self._watch(sender, reader)
        sender.hold()
        self._raise_failures(sender, reader)

    def _spark_is_starting(self) -> bool:
        return self._spark is not None and not self._spark.is_running

    def _kill(self, sender: Sender) -> None:
        self._node.kill()
        self._lines.act("kill -9", f"the broker is down, after {sender.acknowledged:,} events")
        time.sleep(AWAY_S)
        took = self._node.start()
        self._lines.act("broker", f"back after {took:.1f} s; all clients have reconnected")

    def _check(self, sender: Sender, reader: SlowReader) -> None:
        self._lines.act(
            "pause", f"all {sender.acknowledged:,} events are acknowledged; the longest wait was {sender.pause_s_max:.1f} s"
        )
        bootstrap = self._node.bootstrap
        verdict, facts = check_topic(bootstrap, EVENTS, sender)
        self._judge(verdict)
        if self._spark is not None:
            self._spark.catch_up(sender.acknowledged)
            # What the last events have closed comes out a moment after they are in.
            wait_until(lambda: check_totals(bootstrap, TOTALS, facts).held, WINDOWS_S, pause_s=0.5)
            self._judge(check_totals(bootstrap, TOTALS, facts))
            self._judge(check_table(self._spark.table(), sender))
        self._judge(check_positions(bootstrap, EVENTS, GROUP, reader))
        held = all(verdict.held for verdict in self._verdicts)
        self._lines.text("\nNothing was lost, nothing duplicated." if held else "\nA check failed; see the lines marked FAILED.")

    def _judge(self, verdict: Verdict) -> None:
        self._verdicts.append(verdict)
        self._lines.act("ok" if verdict.held else "FAILED", verdict.what)

    def _stay(self, sender: Sender, reader: SlowReader) -> None:
        """Goes on until Ctrl-C. What people try meanwhile does not end it: deleted topics and failed traffic are restored."""
        self._lines.text(f"\nIt keeps running until Ctrl-C. Open {self._node.console}, or paste one of the commands above.")
        sender.go_on()
        try:
            while True:
                if self._is_broken(sender, reader):
                    sender.end()
                    reader.end()
                    sender, reader = self._start_traffic()
                self._watch(sender, reader)
        except KeyboardInterrupt:
            self._lines.clear()
        finally:
            sender.end()
            reader.end()

    def _is_broken(self, sender: Sender, reader: SlowReader) -> bool:
        """Whether traffic has to restart. Looks every few seconds, creates deleted topics again, drops a Spark that failed."""
        if time.monotonic() - self._looked < LOOK_S:
            return False
        self._looked = time.monotonic()
        if self._spark is not None and self._spark.failure is not None:
            self._lines.act("spark", f"stopped: {self._spark.failure}")
            self._spark.stop()
            self._spark = None
        again = _make_topics(self._node.bootstrap)
        for name in again:
            self._lines.act("topic", f"{name} was deleted; it is created again")
        failures = [f"{who} restarts: {part.failure}" for who, part in (("sender", sender), (GROUP, reader)) if part.failure]
        for failure in failures:
            self._lines.act("events", failure)
        return EVENTS in again or bool(failures)

    def _watch(self, sender: Sender, reader: SlowReader) -> None:
        behind = sender.acknowledged - sum(reader.positions.values())
        figures = [f"{sender.acknowledged:,} events", f"{GROUP} lag {behind:,}"]
        if self._spark is not None:
            self._spark.look()
            rows = self._spark.rows
            figures += [f"{name} {count:,}" for name, count in rows.items()] if any(rows.values()) else ["Spark is starting"]
        self._lines.status(" · ".join(figures))
        time.sleep(TICK_S * 4)

    def _raise_failures(self, sender: Sender, reader: SlowReader) -> None:
        for who, failure in (("sender", sender.failure), (GROUP, reader.failure)):
            if failure is not None:
                raise CommandError(f"{who}: {failure}")
        if self._spark is not None and self._spark.failure is not None:
            raise CommandError(self._spark.failure)

    def _say_what_to_paste(self) -> None:
        where = f"--bootstrap {self._node.bootstrap}"
        self._lines.text("          While it runs, paste into another terminal:")
        topic, last = (TOTALS, "pipeline list") if self._spark is not None else (EVENTS, f"topic describe {EVENTS}")
        for command in (f"consume {topic} --follow", f"group describe {GROUP}", last):
            self._lines.text(f"            penstock {command} {where}")


class Lines:
    """What is told: acts that stay, each with its time, and on a terminal one last line that is rewritten."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._is_terminal = sys.stdout.isatty()

    def act(self, name: str, what: str) -> None:
        """Something happened."""
        self.text(f"{time.monotonic() - self._began:6.1f} s  {name:<8} {what}")

    def text(self, line: str) -> None:
        """A line as it is."""
        self.clear()
        print(line, flush=True)

    def status(self, figures: str) -> None:
        """How it stands now."""
        if self._is_terminal:
            sys.stdout.write(f"\r{time.monotonic() - self._began:6.1f} s  {figures}\x1b[K")
            sys.stdout.flush()

    def clear(self) -> None:
        """Wipe the line that is rewritten."""
        if self._is_terminal:
            sys.stdout.write("\r\x1b[K")


def _make_topics(bootstrap: str) -> list[str]:
    """Creates the topics of the demo. Returns those that were not there."""
    wanted = [topics.CreatableTopic(name=name, num_partitions=count, replication_factor=-1) for name, count in PARTITIONS.items()]
    with CommandClient(bootstrap) as client:
        answer = client.call(
            keys.CREATE_TOPICS, topics.CreateTopicsRequest(topics=wanted, timeout_ms=30_000), topics.CreateTopicsResponse
        )
    for item in answer.topics:
        if item.error_code not in (errors.NONE, errors.TOPIC_ALREADY_EXISTS):
            raise RequestRefusedError(f"topic {item.name!r}", item.error_code, item.error_message)
    return [item.name for item in answer.topics if not item.error_code]
