"""`penstock demo` as a user runs it, and its checks, which must find what they are there to find."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from random import Random

import pytest

from penstock.cli.demo_checks import Facts, Totals, check_positions, check_table, check_topic, check_totals
from penstock.cli.demo_shop import Event, shop_events
from penstock.cli.demo_show import EVENTS, GROUP, TOTALS
from penstock.cli.demo_traffic import Sender, SlowReader, wait_until
from tests.e2e.running_node import PENSTOCK, RunningNode, environment, penstock, running_node


@pytest.mark.slow
@pytest.mark.timeout(420)  # Spark takes its time to start where much else runs
def test_the_demo_ends_by_itself_and_everything_holds(tmp_path: Path) -> None:
    done = penstock("demo", "--seconds", "5", "--rate", "400", "--dir", str(tmp_path), timeout=400)
    said = done.stdout.decode()
    assert done.returncode == 0, said + done.stderr.decode()
    assert "Nothing was lost, nothing duplicated." in said
    assert "FAILED" not in said
    for act in ("kill -9", "back after", "the topic holds", "the totals of", "the table on disk", "lost no committed offset"):
        assert act in said, f"{act!r} is missing in:\n{said}"
    assert said.count("penstock ") >= 6


def test_without_spark_it_says_so_and_does_the_rest() -> None:
    done = penstock("demo", "--seconds", "2", "--no-spark")
    said = done.stdout.decode()
    assert done.returncode == 0, said + done.stderr.decode()
    assert "skipped: --no-spark was given" in said
    assert "the topic holds" in said


def test_it_stays_until_it_is_told_to_stop(tmp_path: Path) -> None:
    command = [*PENSTOCK, "demo", "--seconds", "1", "--no-spark", "--keep", "--dir", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment()) as demo:
        assert demo.stdout is not None
        said = ""
        while "until Ctrl-C" not in said:
            line = demo.stdout.readline()
            assert line, said
            said += line
        bootstrap = said.partition("clients at ")[2].split()[0]
        before = _ends(bootstrap)
        assert wait_until(lambda: _ends(bootstrap) > before, 20), "live data goes on"
        assert penstock("topic", "delete", EVENTS, "--yes", "--bootstrap", bootstrap).returncode == 0
        while "was deleted; it is created again" not in said:
            line = demo.stdout.readline()
            assert line, said
            said += line
        assert wait_until(lambda: b'"end"' in (ends := _ends(bootstrap)) and ends != _ends(bootstrap), 60), "and after a deletion"
        demo.send_signal(signal.SIGINT)
        assert demo.wait(30) == 0
    assert penstock("topic", "list", "--bootstrap", bootstrap, "--timeout", "1").returncode == 3, "its broker is gone too"
    again = penstock("demo", "--seconds", "1", "--no-spark", "--dir", str(tmp_path))
    assert (again.returncode, b"another --dir" in again.stderr) == (1, True), "a demo does not run over what another left"


def test_the_storage_below_survives_what_it_should() -> None:
    done = penstock("demo", "--storage", timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    assert b"Everything held." in done.stdout
    assert b"FAILED" not in done.stdout


def test_events_tell_of_visits_and_are_the_same_for_a_seed() -> None:
    events = list(islice(shop_events(Random(7)), 2000))
    assert [event.id for event in events] == list(range(2000))
    assert {event.kind for event in events} == {"view", "cart", "order"}
    assert events == list(islice(shop_events(Random(7)), 2000))


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    """A broker with a topic that holds a hundred events."""
    folder = tmp_path_factory.mktemp("node")
    with running_node(folder / "log", ["--data-dir", str(folder / "data")]) as running:
        _write(running, list(islice(shop_events(Random(1)), 100)), EVENTS)
        yield running


def _write(node: RunningNode, events: list[Event], topic: str) -> None:
    lines = b"".join(event.customer.encode() + b"\t" + event.value() + b"\n" for event in events)
    node.ok("produce", topic, "--key-separator", "\\t", stdin=lines)


def _sender(node: RunningNode, acknowledged: int) -> Sender:
    sender = Sender(node.bootstrap, EVENTS, 1.0, Random(1))
    sender.acknowledged = acknowledged
    return sender


def _ends(bootstrap: str) -> bytes:
    return penstock("topic", "describe", EVENTS, "--bootstrap", bootstrap, "-o", "json").stdout


def test_what_is_there_once_and_in_order_holds(node: RunningNode) -> None:
    verdict, facts = check_topic(node.bootstrap, EVENTS, _sender(node, 100))
    assert verdict.held, verdict.what
    assert sum(counted.events for counted in facts.totals.values()) == 100


def test_a_lost_event_is_found(node: RunningNode) -> None:
    verdict, _ = check_topic(node.bootstrap, EVENTS, _sender(node, 101))
    assert not verdict.held
    assert "1 events lost" in verdict.what


def test_a_doubled_event_is_found(node: RunningNode) -> None:
    events = list(islice(shop_events(Random(1)), 10))
    _write(node, [*events, events[4]], "doubled")
    verdict, _ = check_topic(node.bootstrap, "doubled", _sender(node, 10))
    assert not verdict.held
    assert "1 duplicated" in verdict.what


def _rows(totals: Totals) -> bytes:
    rows = ({"window_ms": window, "category": category, **counted._asdict()} for (window, category), counted in totals.items())
    return "\n".join(map(json.dumps, rows)).encode()


@pytest.fixture(scope="module")
def facts(node: RunningNode) -> Facts:
    """What the topic says, seen much later, when all its windows are over."""
    found = check_topic(node.bootstrap, EVENTS, _sender(node, 100))[1]
    return found._replace(last_ms=found.last_ms + 60_000)


def test_totals_that_agree_with_the_topic_hold(node: RunningNode, facts: Facts) -> None:
    node.ok("produce", TOTALS, stdin=_rows(facts.totals))
    assert check_totals(node.bootstrap, TOTALS, facts).held


def test_totals_written_twice_are_found(node: RunningNode, facts: Facts) -> None:
    node.ok("produce", "twice", stdin=_rows(facts.totals) + b"\n" + _rows(facts.totals))
    assert not check_totals(node.bootstrap, "twice", facts).held


def test_wrong_totals_are_found(node: RunningNode, facts: Facts) -> None:
    place = next(iter(facts.totals))
    wrong = {**facts.totals, place: facts.totals[place]._replace(cents=-1)}
    node.ok("produce", "wrong", stdin=_rows(wrong))
    assert not check_totals(node.bootstrap, "wrong", facts).held


def test_a_missing_window_is_found_if_it_is_over(node: RunningNode, facts: Facts) -> None:
    some = dict(list(facts.totals.items())[1:])
    node.ok("produce", "missing", stdin=_rows(some))
    assert not check_totals(node.bootstrap, "missing", facts).held
    assert check_totals(node.bootstrap, "missing", facts._replace(last_ms=0)).held, "it may still come"


@pytest.mark.parametrize(
    ("changed", "held"), [({}, True), ({"rows": 101}, False), ({"ids": 99}, False), ({"last": 98}, False), ({"cents": 1}, False)]
)
def test_a_table_with_too_much_or_too_little_is_found(node: RunningNode, changed: dict[str, int], held: bool) -> None:
    found = {"rows": 100, "ids": 100, "last": 99, "cents": 0, "files": 1} | changed
    assert check_table(found, _sender(node, 100)).held is held


def test_the_slow_reader_is_a_member_that_falls_behind(node: RunningNode) -> None:
    reader = SlowReader(node.bootstrap, EVENTS, GROUP, 100.0, Random())
    reader.start()
    assert wait_until(lambda: sum(reader.positions.values()) > 5, 20), reader.failure
    described = node.ok("group", "describe", GROUP)
    reader.end()
    assert reader.failure is None
    assert EVENTS in described
    assert check_positions(node.bootstrap, EVENTS, GROUP, reader).held
    reader.positions[0] += 1
    assert not check_positions(node.bootstrap, EVENTS, GROUP, reader).held, "a position that went back"


def test_a_failure_of_the_sender_is_told(tmp_path: Path) -> None:
    with running_node(tmp_path / "log", ["--data-dir", str(tmp_path / "data"), "--auto-create-topics", "false"]) as running:
        sender = Sender(running.bootstrap, "nowhere", 10.0, Random())
        sender.start()
        began = time.monotonic()
        while sender.failure is None and time.monotonic() - began < 20:
            time.sleep(0.05)
        sender.end()
    assert "nowhere" in str(sender.failure)
