"""What administrators have set: users, access rules, quotas, tokens, and configuration that is changed while a node runs."""

from __future__ import annotations

from base64 import urlsafe_b64decode
from typing import Any, Final

import grpc
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialUpsertion,
)

from penstock.gateway.ydb.protos import discovery
from penstock.kafka.protocol import keys
from penstock.kafka.protocol.quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    AlterClientQuotasResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    OpData,
)
from tests.e2e.kafka.secured import confluent_options
from tests.upgrade.clients import TIMEOUT_S, Clients
from tests.upgrade.content import Notes

PRODUCE_RATE: Final = "producer_byte_rate"


class UsersAndRules:
    """Users who sign in with their passwords and may do what the rules say, and tokens of which some are revoked."""

    name = "users"
    _OPEN: Final = "users-open"
    _CLOSED: Final = "users-closed"

    def write(self, clients: Clients, notes: Notes) -> None:
        for topic in (self._OPEN, self._CLOSED):
            clients.create(topic)
        notes["passwords"] = {}
        self.add(clients, notes)
        notes["revoked"] = self._token(clients, notes, "user-1")
        clients.revoke_tokens("user-1")
        notes["token"] = self._token(clients, notes, "user-1")

    def check(self, clients: Clients, notes: Notes) -> None:
        users = sorted(notes["passwords"])
        anyone: Any = None
        anything = (ResourceType.ANY, anyone, ResourcePatternType.ANY, anyone, anyone, AclOperation.ANY, AclPermissionType.ANY)
        every = AclBindingFilter(*anything)
        assert set(clients.admin.describe_acls(every).result(TIMEOUT_S)) == {rule for user in users for rule in self._rules(user)}
        for user in users:
            assert self._send(clients, notes, user, self._OPEN) is None
            assert self._send(clients, notes, user, self._CLOSED) == KafkaError.TOPIC_AUTHORIZATION_FAILED
        assert "revoked" in self._refusal(clients, notes["revoked"])
        assert self._refusal(clients, notes["token"]) in ("", "the token of 'user-1' has expired; sign in again")
        assert _generation(self._token(clients, notes, "user-1")) == _generation(notes["token"]) == 1

    def add(self, clients: Clients, notes: Notes) -> None:
        user = f"user-{len(notes['passwords']) + 1}"
        password = notes["passwords"][user] = f"of {user}"
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
        changes: list[UserScramCredentialAlteration] = [UserScramCredentialUpsertion(user, info, password.encode())]
        clients.admin.alter_user_scram_credentials(changes)[user].result(TIMEOUT_S)
        for created in clients.admin.create_acls(self._rules(user)).values():
            created.result(TIMEOUT_S)

    def _rules(self, user: str) -> list[AclBinding]:
        """A user may write to topics of a prefix, but not to one of them."""
        rights = (
            ("users", ResourcePatternType.PREFIXED, AclPermissionType.ALLOW),
            (self._CLOSED, ResourcePatternType.LITERAL, AclPermissionType.DENY),
        )
        return [
            AclBinding(ResourceType.TOPIC, name, pattern, f"User:{user}", "*", AclOperation.WRITE, permission)
            for name, pattern, permission in rights
        ]

    def _send(self, clients: Clients, notes: Notes, user: str, topic: str) -> int | None:
        """Write as a user who signs in with SCRAM; the code of the error, if there is one."""
        options = confluent_options(clients.node.bootstrap, user=user, password=notes["passwords"][user])
        producer = Producer({**options, "message.timeout.ms": 10_000})
        failures: list[KafkaError] = []
        producer.produce(topic, b"mine", on_delivery=lambda error, _: failures.append(error) if error else None)
        producer.flush(TIMEOUT_S)
        return failures[0].code() if failures else None

    def _token(self, clients: Clients, notes: Notes, user: str) -> str:
        return str(clients.ydb_credentials(user, notes["passwords"][user]).get_auth_token())

    def _refusal(self, clients: Clients, token: str) -> str:
        """Why a call with a token is refused; empty if it is not."""
        with grpc.insecure_channel(f"127.0.0.1:{clients.port('ydb')}") as channel:
            call = channel.unary_unary(
                "/Ydb.Discovery.V1.DiscoveryService/WhoAmI",
                request_serializer=discovery.WhoAmIRequest.SerializeToString,
                response_deserializer=discovery.WhoAmIResponse.FromString,
            )
            try:
                call(discovery.WhoAmIRequest(), timeout=TIMEOUT_S, metadata=[("x-ydb-auth-ticket", token)])
            except grpc.RpcError as error:
                return str(error.details())
        return ""


class Quotas:
    """Quotas of users and of all clients."""

    name = "quotas"

    def write(self, clients: Clients, notes: Notes) -> None:
        notes["rates"] = []
        self._set(clients, notes, "user", "limited-user", 1_000_000.0)
        self._set(clients, notes, "client-id", None, 2_000_000_000.0)

    def check(self, clients: Clients, notes: Notes) -> None:
        request = DescribeClientQuotasRequest(components=[], strict=False)
        response = clients.raw.call(keys.DESCRIBE_CLIENT_QUOTAS, 1, request, DescribeClientQuotasResponse)
        found = [
            [entry.entity[0].entity_type, entry.entity[0].entity_name, {value.key: value.value for value in entry.values}]
            for entry in response.entries or []
        ]
        expected = [[kind, name, {PRODUCE_RATE: rate}] for kind, name, rate in notes["rates"]]
        assert sorted(found, key=str) == sorted(expected, key=str)

    def add(self, clients: Clients, notes: Notes) -> None:
        self._set(clients, notes, "user", f"user-{len(notes['rates'])}", 3_000_000.0)

    def _set(self, clients: Clients, notes: Notes, kind: str, name: str | None, rate: float) -> None:
        entity = AlterClientQuotasRequestEntityData(entity_type=kind, entity_name=name)
        entry = AlterClientQuotasRequestEntryData(entity=[entity], ops=[OpData(key=PRODUCE_RATE, value=rate)])
        request = AlterClientQuotasRequest(entries=[entry], validate_only=False)
        response = clients.raw.call(keys.ALTER_CLIENT_QUOTAS, 1, request, AlterClientQuotasResponse)
        assert response.entries[0].error_code == 0
        notes["rates"].append([kind, name, rate])


class DynamicSettings:
    """Settings of a topic, a group and the broker that were changed while the node ran."""

    name = "configured"
    _CHANGED: Final = (
        (ResourceType.TOPIC, "configured", "retention.ms"),
        (ResourceType.BROKER, "1", "max.connections"),
        (ResourceType.GROUP, "configured", "consumer.session.timeout.ms"),
    )

    def write(self, clients: Clients, notes: Notes) -> None:
        clients.create(self.name, compression_type="zstd")
        notes["value"] = 45_000
        self.add(clients, notes)

    def check(self, clients: Clients, notes: Notes) -> None:
        for kind, name, key in self._CHANGED:
            resource = ConfigResource(kind, name)
            config = clients.admin.describe_configs([resource])[resource].result(TIMEOUT_S)
            assert config[key].value == str(notes["value"]), f"{key} of {name!r}"
            assert kind is not ResourceType.TOPIC or config["compression.type"].value == "zstd"

    def add(self, clients: Clients, notes: Notes) -> None:
        notes["value"] += 1_000
        for kind, name, key in self._CHANGED:
            clients.configure(name, key, str(notes["value"]), kind)


def _generation(token: str) -> int:
    """How often the tokens of its user had been revoked when a token was issued."""
    raw = urlsafe_b64decode(token + "=" * (-len(token) % 4))
    return int.from_bytes(raw[9:13], "big")
