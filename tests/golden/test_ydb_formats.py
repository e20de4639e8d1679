"""Messages and settings of YDB's clients as they are stored, pinned: what an older Penstock wrote must stay readable."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from penstock.broker import Topic, TopicConfig
from penstock.core.errors import ConfigError
from penstock.gateway.ydb.protos import RAW, timestamp, topic
from penstock.gateway.ydb.stored_messages import Message, decode_messages
from penstock.gateway.ydb.topic_settings import KEY, ConsumerSettings, TopicSettings, settings_of, with_consumers
from penstock.gateway.ydb.written_batch import WriteSession, encode_batches

FOLDER = Path(__file__).parent
SETTINGS = TopicSettings(
    (1, 2),
    {"team": "shop"},
    {"plain": ConsumerSettings("plain"), "late": ConsumerSettings("late", 1_700_000_000_000, (1,), {"a": "b"})},
)


def _golden(name: str) -> bytes:
    return bytes.fromhex((FOLDER / name).read_text(encoding="ascii"))


def test_a_batch_of_messages() -> None:
    sent = topic.StreamWriteMessage.WriteRequest.MessageData
    messages = [sent(seq_no=7, data=b"first", created_at=timestamp(1_700_000_000_123))]
    messages[0].metadata_items.add(key="__key", value=b"key")
    messages[0].metadata_items.add(key="color", value=b"red")
    messages.append(sent(seq_no=9, data=b"second", created_at=timestamp(1_700_000_000_456)))
    writer = WriteSession.of("source", "group", {"host": "here"})
    (batch,) = encode_batches(writer, messages, [message.data for message in messages], RAW)
    assert batch.data == _golden("ydb_batch_marked.hex")
    origin = ("source", (("host", "here"),))
    # What was written before batches were marked is read as well, up to where marks begin.
    assert (
        decode_messages(memoryview(_golden("ydb_batch.hex")), 0, marked_from=2)
        == decode_messages(memoryview(batch.data), 0)
        == [
            Message(0, 7, 1_700_000_000_123, b"first", "group", origin, (("__key", b"key"), ("color", b"red"))),
            Message(1, 9, 1_700_000_000_456, b"second", "group", origin, ()),
        ]
    )


def test_settings_of_a_topic() -> None:
    config = with_consumers(TopicConfig(), SETTINGS, {"late"})
    assert config[KEY].encode() == _golden("ydb_settings.hex")
    assert settings_of(Topic("topic", UUID(int=1), (7,), config)) == SETTINGS


def test_settings_of_a_newer_penstock_are_refused() -> None:
    found = Topic("topic", UUID(int=1), (7,), TopicConfig({KEY: '{"version": 2}'}))
    with pytest.raises(ConfigError, match="upgrade Penstock"):
        settings_of(found)


def test_settings_that_are_none_are_refused() -> None:
    for broken in ("no json", "[]", "{}", '{"version": 1, "consumers": [5]}'):
        with pytest.raises(ConfigError, match="unset it"):
            settings_of(Topic("topic", UUID(int=1), (7,), TopicConfig({KEY: broken})))
