"""A Kafka client for our own programs: coroutines on asyncio, or the same ones behind a blocking face.

`KafkaClient` and `ProducerClient` with `AsyncioNetwork` are for event loops, `BlockingClient` for commands and Spark tasks.
"""

from __future__ import annotations

from penstock.kafka.client.address import DEFAULT_PORT, Address, AddressError, parse_addresses
from penstock.kafka.client.blocking import BlockingClient, BlockingConnection
from penstock.kafka.client.client import EARLIEST, GROUP, LATEST, NO_OFFSET, KafkaClient, TopicInfo, TopicPartition
from penstock.kafka.client.connection import FRAME_BYTES_MAX, ReceiveBuffer, SentRequest
from penstock.kafka.client.errors import BrokerRefusedError, BrokerUnreachableError, RequestRefusedError, is_retriable
from penstock.kafka.client.network import BlockingNetwork, Network, finish
from penstock.kafka.client.options import ClientOptions, ClientSecurity, SettingNames
from penstock.kafka.client.transactions import OpenTransaction, ProducerClient, ProducerIdentity

__all__ = [
    "DEFAULT_PORT",
    "EARLIEST",
    "FRAME_BYTES_MAX",
    "GROUP",
    "LATEST",
    "NO_OFFSET",
    "Address",
    "AddressError",
    "BlockingClient",
    "BlockingConnection",
    "BlockingNetwork",
    "BrokerRefusedError",
    "BrokerUnreachableError",
    "ClientOptions",
    "ClientSecurity",
    "KafkaClient",
    "Network",
    "OpenTransaction",
    "ProducerClient",
    "ProducerIdentity",
    "ReceiveBuffer",
    "RequestRefusedError",
    "SentRequest",
    "SettingNames",
    "TopicInfo",
    "TopicPartition",
    "finish",
    "is_retriable",
    "parse_addresses",
]
