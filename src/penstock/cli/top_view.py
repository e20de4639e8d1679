"""What `penstock top` shows, drawn with rich: figures of the node, topics, consumer groups and disks."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from penstock.cli.sizes import counted, shown_bytes, shown_duration

NEARLY_EXPIRED = 0.8
"The share of the retention from which an unread message is about to be deleted."


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
    table = _table("topic", "partitions", "messages", "size", "produce msg/s", "produce", "fetch", "groups")
    for topic in topics:
        table.add_row(
            topic["name"],
            str(topic["partitions"]),
            f"{topic['messages']:,}",
            shown_bytes(topic["bytes"]),
            f"{topic['produce_messages_per_s']:,.1f}",
            f"{shown_bytes(topic['produce_bytes_per_s'])}/s",
            f"{shown_bytes(topic['fetch_bytes_per_s'])}/s",
            str(topic["consumers"]),
        )
    return table


def _groups(groups: list[dict[str, Any]]) -> Table:
    table = _table("consumer group", "members", "lag", "lag size", "behind", "of retention", left=("state",))
    for group in groups:
        share = group["retention_share"]
        style = "red" if share is not None and share >= NEARLY_EXPIRED else None
        table.add_row(
            group["name"],
            group["state"],
            str(group["members"]),
            f"{group['lag_messages']:,}",
            shown_bytes(group["lag_bytes"]),
            "" if group["lag_seconds"] is None else shown_duration(group["lag_seconds"]),
            "" if share is None else f"{share:.0%}",
            style=style,
        )
    return table


def _storage(groups: list[dict[str, Any]]) -> Table:
    table = _table("storage group", "disks", "used", "free", left=("erasure", "state"))
    for group in groups:
        serving = sum(vdisk["state"] == "serving" for vdisk in group["vdisks"])
        table.add_row(
            group["name"],
            group["erasure"],
            group["state"],
            f"{serving} of {len(group['vdisks'])}",
            shown_bytes(group["used"]),
            shown_bytes(group["free"]),
            style=None if group["state"] == "healthy" else "red",
        )
    return table


def _table(name: str, *numeric: str, left: tuple[str, ...] = ()) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", expand=False)
    table.add_column(name.upper(), overflow="ellipsis", no_wrap=True, min_width=16)
    for column in left:
        table.add_column(column.upper(), no_wrap=True)
    for column in numeric:
        table.add_column(column.upper(), justify="right", no_wrap=True)
    return table


def _rate(flow: dict[str, float]) -> str:
    return f"{flow['messages_per_s']:,.1f} msg/s, {shown_bytes(flow['bytes_per_s'])}/s"
