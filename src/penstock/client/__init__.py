"""Penstock for people who script: `Client`, and `AsyncClient` for asyncio, with what they take and return."""

from __future__ import annotations

from penstock.client.admin_api import AdminRefusedError, AdminUnreachableError
from penstock.client.blocking_client import Client
from penstock.client.client import AsyncClient
from penstock.client.consumption import AsyncMessages, Messages
from penstock.client.messages import Message, MessageDraft, WrittenMessage
from penstock.client.streams import StreamMessage, StreamRefusedError, StreamUnavailableError
from penstock.client.views import (
    CommittedOffset,
    ConfigEntry,
    Group,
    GroupDetail,
    Member,
    OffsetMove,
    Partition,
    Pipeline,
    Subject,
    Topic,
)
from penstock.core.errors import PenstockError
from penstock.kafka.client import BrokerRefusedError, BrokerUnreachableError, RequestRefusedError

__all__ = [
    "AdminRefusedError",
    "AdminUnreachableError",
    "AsyncClient",
    "AsyncMessages",
    "BrokerRefusedError",
    "BrokerUnreachableError",
    "Client",
    "CommittedOffset",
    "ConfigEntry",
    "Group",
    "GroupDetail",
    "Member",
    "Message",
    "MessageDraft",
    "Messages",
    "OffsetMove",
    "Partition",
    "PenstockError",
    "Pipeline",
    "RequestRefusedError",
    "StreamMessage",
    "StreamRefusedError",
    "StreamUnavailableError",
    "Subject",
    "Topic",
    "WrittenMessage",
]
