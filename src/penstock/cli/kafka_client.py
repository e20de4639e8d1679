"""The Kafka client as commands use it: blocking, with the names of their options in its errors."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Final, TypeVar

from penstock import __version__
from penstock.cli.failure import CommandError, usage
from penstock.client.identity import Identity
from penstock.kafka.client import (
    Address,
    AddressError,
    BlockingClient,
    BrokerUnreachableError,
    ClientOptions,
    RequestRefusedError,
    SettingNames,
    TopicInfo,
    parse_addresses,
)
from penstock.kafka.protocol import Message, errors
from penstock.kafka.protocol.metadata import MetadataResponseTopic

DEFAULT_TIMEOUT_S: Final = 15.0
NODE_TIMEOUT_S: Final = 3.0  # of one node among others, where the answer of the others is worth showing

R = TypeVar("R", bound=Message)

_NAMES: Final = SettingNames("--bootstrap", "--timeout", "--user", "--user", "--tls-ca")


class CommandClient(BlockingClient):
    """The cluster behind `bootstrap`, written as for --bootstrap."""

    def __init__(self, bootstrap: str, timeout_s: float = DEFAULT_TIMEOUT_S, identity: Identity | None = None) -> None:
        try:
            addresses = parse_addresses(bootstrap, _NAMES.bootstrap)
        except AddressError as error:
            raise usage(str(error)) from error
        super().__init__(
            ClientOptions(
                bootstrap=addresses,
                client_id=f"penstock-cli-{__version__}",
                request_timeout_s=timeout_s,
                api_timeout_s=timeout_s,
                security=(identity or Identity()).security,
                names=_NAMES,
                # Who names several nodes has a cluster, in which another takes over from one that is lost.
                waits_for_first_node=len(addresses) > 1,
            )
        )
        self.timeout_s = timeout_s

    def __enter__(self) -> CommandClient:
        return self

    def ask_each_node(self, key: int, request: Message, response: type[R]) -> dict[int, R]:
        """The answers of all nodes to a request, by node. A node that does not answer soon is named on standard
        error and left out. BrokerUnreachableError if none answers."""
        brief_s = min(self.timeout_s, NODE_TIMEOUT_S)
        failures: list[BrokerUnreachableError] = []
        answers: dict[int, R] = {}
        with BlockingClient(replace(self.options, request_timeout_s=brief_s, api_timeout_s=brief_s)) as brief:
            for broker in self.metadata([]).brokers:
                brief.coroutines.nodes[broker.node_id] = Address(broker.host, broker.port)
                try:
                    answers[broker.node_id] = brief.node_call(broker.node_id, key, request, response)
                except BrokerUnreachableError as error:
                    failures.append(error)
                    sys.stderr.write(f"node {broker.node_id} is left out: {error}\n")
        if failures and not answers:
            raise failures[0]
        return answers

    def topic(self, name: str, *, create: bool = False) -> MetadataResponseTopic:
        """Return a topic all of whose partitions have a leader."""

        def ask() -> MetadataResponseTopic:
            (topic,) = self.metadata([name], create=create).topics
            for code in (topic.error_code, *(partition.error_code for partition in topic.partitions)):
                if code == errors.UNKNOWN_TOPIC_OR_PARTITION:
                    raise CommandError(f"there is no topic {name!r}; `penstock topic create` creates one")
                if code:
                    raise RequestRefusedError(f"topic {name!r}", code)
            return topic

        return self.retry(ask)

    def topic_info(self, topic: MetadataResponseTopic) -> TopicInfo:
        """The same topic, with the addresses of its leaders."""
        nodes = self.coroutines.nodes
        leaders = {item.partition_index: nodes[item.leader_id] for item in topic.partitions}
        return TopicInfo(topic.name or "", topic.topic_id, dict(sorted(leaders.items())))
