"""Schemas in a topic of Kafka, in the form in which Confluent's registry keeps them in `_schemas`.

Keys and values are JSON. Of all records with one key the last counts; null deletes it. Records of other kinds, which registries
write to find the end of the topic, are left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from penstock.cli.consumer import Consumer
from penstock.cli.kafka_client import CommandClient
from penstock.cli.positions import EARLIEST, LATEST, list_offsets
from penstock.cli.producer import Producer
from penstock.client.messages import MessageDraft

Line = dict[str, Any]
"""A line of `penstock schema export`: a version of a subject, or a level or a mode."""

_SETTINGS: Final = {"CONFIG": "config", "MODE": "mode"}
_KINDS: Final = {name: kind for kind, name in _SETTINGS.items()}


def read_lines(client: CommandClient, topic_name: str) -> list[Line]:
    """What a registry has in its topic: versions by id, then levels and modes."""
    topic = client.topic(topic_name)
    numbers = [item.partition_index for item in topic.partitions]
    starts = list_offsets(client, topic, dict.fromkeys(numbers, EARLIEST))
    ends = list_offsets(client, topic, dict.fromkeys(numbers, LATEST))
    records = (record for page in Consumer(client, topic, starts, ends).read() for _, record in page)
    return lines_of((record.key, record.value) for record in records)


def lines_of(records: Iterable[tuple[bytes | None, bytes | None]]) -> list[Line]:
    """The state that records give together."""
    versions: dict[tuple[str, int], Line] = {}
    settings: dict[tuple[str, str | None], Line] = {}
    for raw_key, raw_value in records:
        key, value = _object(raw_key), _object(raw_value)
        if key is None or (raw_value is not None and value is None):
            continue
        kind, subject = key.get("keytype"), key.get("subject")
        if kind == "SCHEMA":
            place = (str(subject), int(key["version"]))
            versions.pop(place, None)
            if value is not None:
                versions[place] = {name: each for name, each in value.items() if each is not None}
        elif kind == "DELETE_SUBJECT" and value is not None:
            for at, version in versions.items():
                if at[0] == value["subject"] and at[1] <= value["version"]:
                    version["deleted"] = True
        elif kind in _SETTINGS:
            settings.pop((kind, subject), None)
            if value is not None:
                settings[kind, subject] = {_SETTINGS[kind]: value, "of": subject}
    ordered = sorted(versions.values(), key=lambda version: (version["id"], version["subject"], version["version"]))
    return [*ordered, *settings.values()]


def write_lines(client: CommandClient, topic_name: str, lines: Iterable[Line]) -> int:
    """Write versions, levels and modes to a topic, as a registry would that had them. Returns how many records that are."""
    drafts = [MessageDraft(*_record(line)) for line in lines]
    Producer(client, topic_name).send(drafts)
    return len(drafts)


def _record(line: Mapping[str, Any]) -> tuple[bytes, bytes]:
    if "schema" in line:
        key = {"keytype": "SCHEMA", "subject": line["subject"], "version": line["version"], "magic": 1}
        return _packed(key), _packed({**line, "deleted": bool(line.get("deleted", False))})
    name = next(name for name in _KINDS if name in line)
    return _packed({"keytype": _KINDS[name], "subject": line["of"], "magic": 0}), _packed(line[name])


def _packed(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()


def _object(raw: bytes | None) -> dict[str, Any] | None:
    try:
        content = None if raw is None else json.loads(raw)
    except ValueError:
        return None
    return content if isinstance(content, dict) else None
