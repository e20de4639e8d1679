"""What `penstock top` shows, drawn with rich: figures of the node, topics, consumer groups and disks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from penstock.cli.sizes import counted, shown_bytes, shown_duration

NEARLY_EXPIRED = 0.8
"The share of the retention from which an unread message is about to be deleted."
NAME_WIDTH_MIN = 14


def view(figures: dict[str, Any]) -> RenderableType:
    """Everything, from top to bottom."""
    parts: list[RenderableType] = [_head(figures), "", _topics(figures["topics"]), "", _groups(figures["consumers"])]
    if figures["storage"] is not None:
        parts += ["", _storage(figures["storage"])]
    return Group(*parts)


def _head(figures: dict[str, Any]) -> RenderableType:
    cluster, overview = figures["cluster"], figures["overview"]
    up_s = (cluster["now_ms"] - cluster["started_ms"]) / 1000
    lines = [
        Text(
            f"{cluster['name']}, node {cluster['node_id']}, Penstock {cluster['version']}, up {shown_duration(up_s)}",
            style="bold",
        ),
        Text(
            f"produce {_rate(overview['produce'])}   fetch {_rate(overview['fetch'])}   {counted(overview['topics'], 'topic')}, "
            f"{counted(overview['partitions'], 'partition')}, {counted(overview['consumers'], 'consumer group')}"
        ),
    ]
    for alert in overview["alerts"]:
        style = "bold red" if alert["level"] == "critical" else "yellow"
        lines.append(Text(f"{alert['level']}: {alert['message']}; {alert['what_to_do']}", style=style))
    return Group(*lines)


def _topics(topics: list[dict[str, Any]]) -> Table:
    rows = [
        (
            topic["name"],
            str(topic["partitions"]),
            f"{topic['messages']:,}",
            shown_bytes(topic["bytes"]),
            f"{topic['produce_messages_per_s']:,.1f}",
            f"{shown_bytes(topic['produce_bytes_per_s'])}/s",
            f"{shown_bytes(topic['fetch_bytes_per_s'])}/s",
            str(topic["consumers"]),
        )
        for topic in topics
    ]
    return _table(("topic", "parts", "messages", "size", "msg/s", "produce", "fetch", "groups"), rows)


def _groups(groups: list[dict[str, Any]]) -> Table:
    rows, styles = [], []
    for group in groups:
        share = group["retention_share"]
        styles.append("red" if share is not None and share >= NEARLY_EXPIRED else None)
        rows.append(
            (
                group["name"],
                group["state"],
                str(group["members"]),
                f"{group['lag_messages']:,}",
                shown_bytes(group["lag_bytes"]),
                "" if group["lag_seconds"] is None else shown_duration(group["lag_seconds"]),
                "" if share is None else f"{share:.0%}",
            )
        )
    headings = ("consumer group", "state", "members", "lag", "lag size", "behind", "of retention")
    return _table(headings, rows, styles, left=1)


def _storage(groups: list[dict[str, Any]]) -> Table:
    rows, styles = [], []
    for group in groups:
        serving = sum(vdisk["state"] == "serving" for vdisk in group["vdisks"])
        is_sound = group["state"] == "healthy" and not any(vdisk["damaged"] for vdisk in group["vdisks"])
        styles.append(None if is_sound else "red")
        rows.append(
            (
                group["name"],
                group["erasure"],
                group["state"],
                f"{serving} of {len(group['vdisks'])}",
                shown_bytes(group["used"]),
                shown_bytes(group["free"]),
            )
        )
    return _table(("storage group", "erasure", "state", "disks", "used", "free"), rows, styles, left=2)


def _table(
    headings: Sequence[str], rows: Sequence[Sequence[str]], styles: Sequence[str | None] | None = None, *, left: int = 0
) -> Table:
    """A table whose first column is cut where the terminal is narrow, and no other. `left` columns after it are texts, the rest
    are figures."""
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold", expand=False)
    for number, (heading, *cells) in enumerate(zip(headings, *rows, strict=True)):
        if number == 0:
            table.add_column(heading.upper(), min_width=NAME_WIDTH_MIN)
        else:
            width = max(map(len, (heading, *cells)))
            table.add_column(heading.upper(), justify="left" if number <= left else "right", no_wrap=True, min_width=width)
    for number, row in enumerate(rows):
        name = Text(row[0], no_wrap=True, overflow="ellipsis")  # a column that must not wrap would not be the first to shrink
        table.add_row(name, *row[1:], style=None if styles is None else styles[number])
    return table


def _rate(flow: dict[str, float]) -> str:
    return f"{flow['messages_per_s']:,.1f} msg/s, {shown_bytes(flow['bytes_per_s'])}/s"
