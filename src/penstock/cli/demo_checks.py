"""What must hold at the end of the demo: every acknowledged event is in the topic, the totals and the table, each once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from penstock.cli.consumer import Consumer
from penstock.cli.demo_pipeline import LATE_MS, WINDOW_MS
from penstock.cli.demo_traffic import PATIENCE_S, Sender, SlowReader
from penstock.cli.group_view import positions
from penstock.cli.kafka_client import CommandClient
from penstock.cli.positions import EARLIEST, LATEST, chosen_partitions, list_offsets
from penstock.client.record_batch import Record


class Verdict(NamedTuple):
    """One thing that was checked."""

    held: bool
    what: str


class CategoryTotal(NamedTuple):
    """What happened in a window, in one category."""

    events: int = 0
    orders: int = 0
    cents: int = 0

    def with_event(self, fields: dict[str, Any]) -> CategoryTotal:
        """And one more."""
        return CategoryTotal(self.events + 1, self.orders + (fields["event"] == "order"), self.cents + fields["cents"])


Totals = dict[tuple[int, str], CategoryTotal]
"""By the start of the window and the category."""


class Facts(NamedTuple):
    """What the topic says that the totals must say as well."""

    totals: Totals
    last_ms: int
    """The latest event: windows that ended long enough before it are over, and must have been written."""

    @property
    def over(self) -> Totals:
        """The totals of those windows."""
        return {place: total for place, total in self.totals.items() if place[0] + WINDOW_MS + LATE_MS <= self.last_ms}


def check_topic(bootstrap: str, topic: str, sender: Sender) -> tuple[Verdict, Facts]:
    """Every event once, and those of a customer in the order they were sent in. Also what the totals must be."""
    seen = bytearray(sender.acknowledged)
    last: dict[bytes, int] = {}
    totals: Totals = {}
    strange = disordered = last_ms = 0
    for _, record in _read(bootstrap, topic):
        fields = json.loads(record.value or b"{}")
        number = fields["id"]
        if number < len(seen):
            seen[number] = min(seen[number] + 1, 2)
        else:
            strange += 1
        customer = record.key or b""
        disordered += last.get(customer, -1) >= number
        last[customer] = number
        place = record.timestamp_ms // WINDOW_MS * WINDOW_MS, fields["category"]
        totals[place] = totals.get(place, CategoryTotal()).with_event(fields)
        last_ms = max(last_ms, record.timestamp_ms)
    facts = Facts(totals, last_ms)
    lost, doubled = seen.count(0), seen.count(2)
    if lost or doubled or strange or disordered:
        what = f"the topic: {lost} events lost, {doubled} duplicated, {strange} unknown, {disordered} out of order"
        return Verdict(False, what), facts
    return Verdict(True, f"the topic holds each of {len(seen):,} acknowledged events once, each customer's in order"), facts


def check_totals(bootstrap: str, topic: str, facts: Facts) -> Verdict:
    """Each window that is over was written, once, and says what the topic says."""
    totals: Totals = {}
    doubled = 0
    for _, record in _read(bootstrap, topic):
        fields = json.loads(record.value or b"{}")
        place = fields["window_ms"], fields["category"]
        doubled += place in totals
        totals[place] = CategoryTotal(fields["events"], fields["orders"], fields["cents"])
    missing = facts.over.keys() - totals.keys()
    wrong = [place for place, counted in totals.items() if facts.totals.get(place) != counted]
    if not totals or missing or wrong or doubled:
        said = f", such as {wrong[0]}: {totals[wrong[0]]}, not {facts.totals.get(wrong[0])}" if wrong else ""
        return Verdict(
            False, f"the totals: {len(totals)} rows, {len(missing)} missing, {len(wrong)} wrong, {doubled} duplicated{said}"
        )
    windows = len({window for window, _ in totals})
    orders, cents = (sum(getattr(counted, name) for counted in totals.values()) for name in ("orders", "cents"))
    return Verdict(True, f"the totals of {windows} windows count each event once: {orders:,} orders, {cents / 100:,.2f} earned")


def check_table(table: dict[str, Any], sender: Sender) -> Verdict:
    """As many rows as ids, as many ids as were acknowledged, and none beyond the last."""
    sent = sender.acknowledged
    held = table["rows"] == table["ids"] == sent and table["last"] == sent - 1 and table["cents"] == sender.cents
    if not held:
        return Verdict(
            False, f"the table has {table['rows']:,} rows with {table['ids']:,} ids up to {table['last']}; sent: {sent:,}"
        )
    return Verdict(True, f"the table on disk holds each once: {table['rows']:,} rows in {table['files']} files")


def check_positions(bootstrap: str, topic: str, group: str, reader: SlowReader) -> Verdict:
    """The group is where its member was told that it is."""
    known = dict(reader.positions)  # first: the reader goes on meanwhile
    with _client(bootstrap) as client:
        stored = positions(client, group)
        described = client.topic(topic)
        ends = list_offsets(client, described, dict.fromkeys(chosen_partitions(described, None), LATEST))
    lost = sum(max(0, offset - stored.get((topic, number), 0)) for number, offset in known.items())
    if lost or not known:
        return Verdict(False, f"the group {group} lost {lost} committed offsets")
    behind = sum(end - stored.get((topic, number), 0) for number, end in ends.items())
    return Verdict(True, f"the group {group} lost no committed offset; its lag is {behind:,} events, as expected")


def _read(bootstrap: str, name: str) -> Iterator[tuple[int, Record]]:
    """All that is committed in a topic now."""
    with _client(bootstrap) as client:
        topic = client.topic(name)
        numbers = chosen_partitions(topic, None)
        starts = list_offsets(client, topic, dict.fromkeys(numbers, EARLIEST))
        ends = list_offsets(client, topic, dict.fromkeys(numbers, LATEST))
        for records in Consumer(client, topic, starts, ends).read():
            yield from records


def _client(bootstrap: str) -> CommandClient:
    return CommandClient(bootstrap, PATIENCE_S)
