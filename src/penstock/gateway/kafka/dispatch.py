"""Which api is served by what. Only what is here is advertised, in the versions the codecs know."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from penstock.blob import UnconfirmedError
from penstock.core.trace_context import current_trace
from penstock.gateway.kafka.apis import (
    access_rules,
    api_versions,
    authentication,
    client_quotas,
    cluster,
    commit_together,
    committed_offsets,
    configs,
    consumer_groups,
    epochs,
    find_pieces,
    group_admin,
    groups,
    leases,
    list_offsets,
    log_dirs,
    metadata,
    placement,
    produce,
    producers,
    quorum,
    scram_credentials,
    topics,
    transaction_listing,
    transactions,
)
from penstock.gateway.kafka.apis.fetch import FetchCall
from penstock.gateway.kafka.call import Call
from penstock.gateway.kafka.probe import has_error
from penstock.gateway.kafka.security.guards import guarded
from penstock.kafka.protocol import APIS, Message, Request, UnsupportedVersionError, keys, private_keys
from penstock.kafka.protocol.cluster import ApiVersion, ApiVersionsRequest
from penstock.kafka.protocol.sasl import SaslAuthenticateRequest, SaslAuthenticateResponse

if TYPE_CHECKING:
    from penstock.gateway.kafka.connection import RequestPipeline
    from penstock.gateway.kafka.node import Node

log = logging.getLogger(__name__)

Handler = Callable[[Call, Any], Awaitable[Message]]

_HANDLERS: Final[dict[int, Handler]] = {
    keys.LIST_OFFSETS: list_offsets.list_offsets,
    keys.METADATA: metadata.metadata,
    keys.OFFSET_COMMIT: committed_offsets.commit,
    keys.OFFSET_FETCH: committed_offsets.fetch,
    keys.FIND_COORDINATOR: cluster.find_coordinator,
    keys.JOIN_GROUP: groups.join_group,
    keys.SYNC_GROUP: groups.sync_group,
    keys.HEARTBEAT: groups.heartbeat,
    keys.LEAVE_GROUP: groups.leave_group,
    keys.CONSUMER_GROUP_HEARTBEAT: consumer_groups.heartbeat,
    keys.CONSUMER_GROUP_DESCRIBE: consumer_groups.describe,
    keys.LIST_GROUPS: group_admin.list_groups,
    keys.DESCRIBE_GROUPS: group_admin.describe_groups,
    keys.DELETE_GROUPS: group_admin.delete_groups,
    keys.OFFSET_DELETE: group_admin.delete_offsets,
    keys.CREATE_TOPICS: topics.create_topics,
    keys.DELETE_TOPICS: topics.delete_topics,
    keys.DELETE_RECORDS: topics.delete_records,
    keys.CREATE_PARTITIONS: topics.create_partitions,
    keys.INIT_PRODUCER_ID: producers.init_producer_id,
    keys.ADD_PARTITIONS_TO_TXN: transactions.add_partitions_to_txn,
    keys.ADD_OFFSETS_TO_TXN: transactions.add_offsets_to_txn,
    keys.END_TXN: transactions.end_txn,
    keys.TXN_OFFSET_COMMIT: transactions.txn_offset_commit,
    keys.DESCRIBE_TRANSACTIONS: transaction_listing.describe_transactions,
    keys.LIST_TRANSACTIONS: transaction_listing.list_transactions,
    private_keys.COMMIT_TOGETHER: commit_together.commit_together,
    private_keys.APPLICATION_RECORD: commit_together.application_record,
    private_keys.FIND_PIECES: find_pieces.find_pieces,
    private_keys.TAKE_LEASE: leases.take_lease,
    private_keys.RENEW_LEASE: leases.renew_lease,
    private_keys.RELEASE_LEASE: leases.release_lease,
    keys.OFFSET_FOR_LEADER_EPOCH: epochs.offset_for_leader_epoch,
    keys.DESCRIBE_CONFIGS: configs.describe_configs,
    keys.ALTER_CONFIGS: configs.alter_configs,
    keys.INCREMENTAL_ALTER_CONFIGS: configs.incremental_alter_configs,
    keys.LIST_CONFIG_RESOURCES: configs.list_config_resources,
    keys.DESCRIBE_LOG_DIRS: log_dirs.describe_log_dirs,
    keys.ALTER_REPLICA_LOG_DIRS: log_dirs.alter_replica_log_dirs,
    keys.DESCRIBE_QUORUM: quorum.describe_quorum,
    keys.DESCRIBE_CLUSTER: cluster.describe_cluster,
    keys.DESCRIBE_PRODUCERS: producers.describe_producers,
    keys.DESCRIBE_TOPIC_PARTITIONS: metadata.describe_topic_partitions,
    keys.SASL_HANDSHAKE: authentication.sasl_handshake,
    keys.SASL_AUTHENTICATE: authentication.sasl_authenticate,
    keys.DESCRIBE_ACLS: access_rules.describe_acls,
    keys.CREATE_ACLS: access_rules.create_acls,
    keys.DELETE_ACLS: access_rules.delete_acls,
    keys.ELECT_LEADERS: placement.elect_leaders,
    keys.ALTER_PARTITION_REASSIGNMENTS: placement.alter_partition_reassignments,
    keys.LIST_PARTITION_REASSIGNMENTS: placement.list_partition_reassignments,
    keys.DESCRIBE_CLIENT_QUOTAS: client_quotas.describe_client_quotas,
    keys.ALTER_CLIENT_QUOTAS: client_quotas.alter_client_quotas,
    keys.DESCRIBE_USER_SCRAM_CREDENTIALS: scram_credentials.describe_user_scram_credentials,
    keys.ALTER_USER_SCRAM_CREDENTIALS: scram_credentials.alter_user_scram_credentials,
}

_DECIDING: Final = frozenset(
    {
        keys.LIST_OFFSETS,
        keys.OFFSET_FETCH,
        keys.OFFSET_FOR_LEADER_EPOCH,
        keys.LIST_GROUPS,
        keys.DESCRIBE_GROUPS,
        keys.CONSUMER_GROUP_DESCRIBE,
        keys.INIT_PRODUCER_ID,
        keys.ADD_PARTITIONS_TO_TXN,
        keys.ADD_OFFSETS_TO_TXN,
        keys.END_TXN,
        keys.DESCRIBE_TRANSACTIONS,
        keys.LIST_TRANSACTIONS,
        keys.DESCRIBE_PRODUCERS,
        keys.SASL_AUTHENTICATE,
        keys.DESCRIBE_ACLS,
        keys.DESCRIBE_USER_SCRAM_CREDENTIALS,
        private_keys.APPLICATION_RECORD,
        private_keys.FIND_PIECES,
        private_keys.TAKE_LEASE,
        private_keys.RENEW_LEASE,
        private_keys.RELEASE_LEASE,
    }
)
"""What clients decide something by: answered only after a confirmation, begun after the request, that no other node serves."""

BEFORE_AUTHENTICATION: Final = frozenset({keys.API_VERSIONS, keys.SASL_HANDSHAKE, keys.SASL_AUTHENTICATE})


async def respond(call: Call) -> Message:
    """Serves a request that has a handler, as far as its client may have what it asks for. UnconfirmedError if another node may
    have taken over meanwhile."""
    confirmations = call.node.confirmations
    if confirmations is None:
        return await _handle(call)
    async with confirmations.answering(is_decision=call.request.api_key in _DECIDING):
        return await _handle(call)


async def _handle(call: Call) -> Message:
    handler = _HANDLERS[call.request.api_key]
    if call.node.access is None:
        return await handler(call, call.request.body)
    response: Message = await guarded(call, call.request.body, handler)
    return response


class TaskCall(Call):
    """A request that is served by a task of its own."""

    __slots__ = ()

    def start(self) -> None:
        _ = self.node.spawn(self._run())

    async def _run(self) -> None:
        if self.span is not None:
            current_trace.set(self.span.traceparent)
        try:
            response = await respond(self)
        except UnconfirmedError as error:
            # The client connects again, and finds the node that serves.
            log.warning("a request with api key %d is not answered: %s", self.request.api_key, error)
            self.hang_up()
            return
        except Exception:
            log.exception("a request with api key %d version %d failed", self.request.api_key, self.version)
            self.hang_up()
            return
        self.is_refused = has_error(response)
        self.answer(response)


class TokenCall(TaskCall):
    """A bare SASL token, as sent after the first version of the handshake: answered by a bare token, or by hanging up."""

    __slots__ = ()

    def answer(self, response: Message | None) -> None:
        if isinstance(response, SaslAuthenticateResponse) and response.error_code:
            self.must_close = True
            response = None
        super().answer(response)

    def encode(self) -> tuple[list[Any], int]:
        assert isinstance(self.response, SaslAuthenticateResponse)
        token = self.response.auth_bytes
        return [len(token).to_bytes(4, "big"), token], 4 + len(token)


class ApiVersionsCall(Call):
    """ApiVersions: every client's first request."""

    __slots__ = ()

    def start(self) -> None:
        self.answer(api_versions.api_versions(self, _ADVERTISED))


def unknown_version(error: UnsupportedVersionError) -> Request:
    """Returns an ApiVersions request of version 0 in place of one of an unknown version. Raises the error for other APIs."""
    if error.api_key != keys.API_VERSIONS:
        raise error
    # Its answer in version 0 every client can read, and that tells it which versions to use.
    request = Request()
    request.api_key, request.api_version, request.correlation_id = keys.API_VERSIONS, 0, error.correlation_id
    request.client_id = None
    request.body = ApiVersionsRequest(client_software_name=api_versions.UNKNOWN_VERSION)
    return request


def token_request(frame: memoryview) -> Request:
    """Returns a SaslAuthenticate request for a bare SASL token."""
    request = Request()
    request.api_key, request.api_version, request.correlation_id = keys.SASL_AUTHENTICATE, 0, 0
    request.client_id = None
    request.body = SaslAuthenticateRequest(auth_bytes=bytes(frame))
    return request


CALLS: Final[dict[int, Callable[[Request, int, Node, RequestPipeline], Call | FetchCall]]] = {
    keys.PRODUCE: produce.ProduceCall,
    keys.FETCH: FetchCall.of,
    keys.API_VERSIONS: ApiVersionsCall,
    **dict.fromkeys(_HANDLERS, TaskCall),
}

_ADVERTISED: Final = [
    ApiVersion(api_key=key, min_version=APIS[key].advertised_min, max_version=APIS[key].max_version)
    for key in sorted(CALLS)
    if key in APIS
]
