"""Which api is served by what. Only what is here is advertised, in the versions the codecs know."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

from penstock.gateway.kafka.apis import (
    api_versions,
    cluster,
    committed_offsets,
    configs,
    epochs,
    fetch,
    list_offsets,
    log_dirs,
    metadata,
    produce,
    producers,
    topics,
)
from penstock.gateway.kafka.call import Call
from penstock.gateway.kafka.protocol import APIS, Message, Request, UnsupportedVersionError, keys
from penstock.gateway.kafka.protocol.cluster import ApiVersion, ApiVersionsRequest

log = logging.getLogger(__name__)

Handler = Callable[[Call, Any], Awaitable[Message]]

_HANDLERS: Final[dict[int, Handler]] = {
    keys.FETCH: fetch.fetch,
    keys.LIST_OFFSETS: list_offsets.list_offsets,
    keys.METADATA: metadata.metadata,
    keys.OFFSET_COMMIT: committed_offsets.commit,
    keys.OFFSET_FETCH: committed_offsets.fetch,
    keys.FIND_COORDINATOR: cluster.find_coordinator,
    keys.CREATE_TOPICS: topics.create_topics,
    keys.DELETE_TOPICS: topics.delete_topics,
    keys.DELETE_RECORDS: topics.delete_records,
    keys.CREATE_PARTITIONS: topics.create_partitions,
    keys.INIT_PRODUCER_ID: producers.init_producer_id,
    keys.OFFSET_FOR_LEADER_EPOCH: epochs.offset_for_leader_epoch,
    keys.DESCRIBE_CONFIGS: configs.describe_configs,
    keys.ALTER_CONFIGS: configs.alter_configs,
    keys.INCREMENTAL_ALTER_CONFIGS: configs.incremental_alter_configs,
    keys.LIST_CONFIG_RESOURCES: configs.list_config_resources,
    keys.DESCRIBE_LOG_DIRS: log_dirs.describe_log_dirs,
    keys.DESCRIBE_CLUSTER: cluster.describe_cluster,
    keys.DESCRIBE_PRODUCERS: producers.describe_producers,
    keys.DESCRIBE_TOPIC_PARTITIONS: metadata.describe_topic_partitions,
}


class TaskCall(Call):
    """A request that is served by a task of its own."""

    __slots__ = ()

    def start(self) -> None:
        self.node.spawn(self._run())

    async def _run(self) -> None:
        try:
            response = await _HANDLERS[self.request.api_key](self, self.request.body)
        except Exception:
            log.exception("a request with api key %d version %d failed", self.request.api_key, self.version)
            self.hang_up()
            return
        self.answer(response)


class ApiVersionsCall(Call):
    """ApiVersions: every client's first request."""

    __slots__ = ()

    def start(self) -> None:
        self.answer(api_versions.api_versions(self, _ADVERTISED))


def unknown_version(error: UnsupportedVersionError) -> Request:
    """A request that stands for one in a version nobody knows, if that can be answered; otherwise the error is raised."""
    if error.api_key != keys.API_VERSIONS:
        raise error
    # Its answer in version 0 every client can read, and that tells it which versions to use.
    request = Request()
    request.api_key, request.api_version, request.correlation_id = keys.API_VERSIONS, 0, error.correlation_id
    request.client_id = None
    request.body = ApiVersionsRequest(client_software_name=api_versions.UNKNOWN_VERSION)
    return request


CALLS: Final[dict[int, type[Call]]] = {
    keys.PRODUCE: produce.ProduceCall,
    keys.API_VERSIONS: ApiVersionsCall,
    **dict.fromkeys(_HANDLERS, TaskCall),
}

_ADVERTISED: Final = [
    ApiVersion(api_key=key, min_version=APIS[key].advertised_min, max_version=APIS[key].max_version) for key in sorted(CALLS)
]
