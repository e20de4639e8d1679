"""Guards of the apis about topics, their configuration and the cluster."""

from __future__ import annotations

from typing import Any, Final

from penstock.broker import CLUSTER_NAME, Operation, ResourceKind, UnknownTopicError
from penstock.gateway.kafka.call import Call
from penstock.gateway.kafka.security.authorization import (
    NOT_ASKED,
    Guard,
    Handler,
    allowed_operations,
    each,
    each_topic,
    may_cluster,
    may_topic,
    on_cluster,
    take_out,
    topic_ref,
)
from penstock.kafka.protocol import acls as acls_messages
from penstock.kafka.protocol import cluster as cluster_messages
from penstock.kafka.protocol import configs as config_messages
from penstock.kafka.protocol import errors, keys
from penstock.kafka.protocol import metadata as metadata_messages
from penstock.kafka.protocol import offsets as offset_messages
from penstock.kafka.protocol import quorum as quorum_messages
from penstock.kafka.protocol import quotas as quota_messages
from penstock.kafka.protocol import sasl as sasl_messages
from penstock.kafka.protocol import topics as topic_messages

TOPIC_RESOURCE = 2
DELETE_STATES_FROM = 6
NO_NAME_FROM = 12

NOT_TOPIC: Final = errors.TOPIC_AUTHORIZATION_FAILED
NOT_CLUSTER: Final = errors.CLUSTER_AUTHORIZATION_FAILED
DENIED: Final = "access is denied"


async def _metadata(call: Call, request: metadata_messages.MetadataRequest, handler: Handler) -> Any:
    """Return only topics that the client may describe. An unknown topic is auto-created only for clients that may create it."""
    wants_all = request.topics is None or (call.version == 0 and not request.topics)
    denied: list[metadata_messages.MetadataRequestTopic] = []
    if not wants_all:
        denied = take_out(request, "topics", lambda topic: may_topic(call, Operation.DESCRIBE, topic_ref(topic)))
        denied += take_out(request, "topics", lambda topic: _is_there(call, topic) or _may_make(call, request, topic))
    response = await handler(call, request)
    if wants_all:
        response.topics = [topic for topic in response.topics if may_topic(call, Operation.DESCRIBE, topic.name or "")]
    elif not request.topics:
        # In the oldest version, nothing left to ask for is taken to ask for everything.
        response.topics = []
    for topic in response.topics:
        if topic.topic_authorized_operations != NOT_ASKED:
            topic.topic_authorized_operations = allowed_operations(call, ResourceKind.TOPIC, topic.name or "")
    for requested in denied:
        name = requested.name if call.version >= NO_NAME_FROM else requested.name or ""
        response.topics.append(
            metadata_messages.MetadataResponseTopic(error_code=NOT_TOPIC, name=name, topic_id=requested.topic_id)
        )
    _mask_cluster(call, response)
    return response


def _is_there(call: Call, topic: metadata_messages.MetadataRequestTopic) -> bool:
    if topic.name is None:
        return True
    try:
        call.node.broker.catalog.topic(topic.name)
    except UnknownTopicError:
        return False
    return True


def _may_make(call: Call, request: metadata_messages.MetadataRequest, topic: metadata_messages.MetadataRequestTopic) -> bool:
    """Whether it does no harm to pass it on: nothing will be made, or the client may make it."""
    is_made = request.allow_auto_topic_creation and call.node.broker.options.auto_create_topics
    return not is_made or may_create(call, topic.name or "")


def may_create(call: Call, name: str) -> bool:
    """Whether a client may make a topic: any, or this one."""
    return may_cluster(call, Operation.CREATE) or may_topic(call, Operation.CREATE, name)


async def _describe_cluster(call: Call, request: Any, handler: Handler) -> Any:
    response = await handler(call, request)
    _mask_cluster(call, response)
    return response


def _mask_cluster(call: Call, response: Any) -> None:
    if response.cluster_authorized_operations != NOT_ASKED:
        response.cluster_authorized_operations = allowed_operations(call, ResourceKind.CLUSTER, CLUSTER_NAME)


async def _describe_topic_partitions(
    call: Call, request: metadata_messages.DescribeTopicPartitionsRequest, handler: Handler
) -> Any:
    kind = metadata_messages.DescribeTopicPartitionsResponseTopic
    denied: list[metadata_messages.TopicRequest] = []
    if request.topics:
        denied = take_out(request, "topics", lambda topic: may_topic(call, Operation.DESCRIBE, topic.name))
    else:
        known = call.node.broker.catalog.topics()
        request.topics = [metadata_messages.TopicRequest(name=topic.name) for topic in known]
        take_out(request, "topics", lambda topic: may_topic(call, Operation.DESCRIBE, topic.name))
    # Without names, all would be asked for.
    response = await handler(call, request) if request.topics else metadata_messages.DescribeTopicPartitionsResponse()
    for topic in response.topics:
        if topic.topic_authorized_operations != NOT_ASKED:
            topic.topic_authorized_operations = allowed_operations(call, ResourceKind.TOPIC, topic.name or "")
    response.topics.extend(kind(error_code=NOT_TOPIC, name=topic.name) for topic in denied)
    return response


async def _delete_topics(call: Call, request: topic_messages.DeleteTopicsRequest, handler: Handler) -> Any:
    if call.version >= DELETE_STATES_FROM:
        denied = take_out(request, "topics", lambda topic: may_topic(call, Operation.DELETE, topic_ref(topic)))
        refused = [(topic.name, topic.topic_id) for topic in denied]
    else:
        refused = [
            (name, bytes(16)) for name in take_out(request, "topic_names", lambda name: may_topic(call, Operation.DELETE, name))
        ]
    response = await handler(call, request)
    for name, topic_id in refused:
        response.responses.append(
            topic_messages.DeletableTopicResult(name=name, topic_id=topic_id, error_code=NOT_TOPIC, error_message=DENIED)
        )
    return response


def _may_configure(operation: Operation) -> Any:
    def allowed(call: Call, resource: Any) -> bool:
        if resource.resource_type == TOPIC_RESOURCE:
            return may_topic(call, operation, resource.resource_name)
        return may_cluster(call, operation)

    return allowed


def _refuse_configs(kind: Any) -> Any:
    def refuse(resource: Any) -> Any:
        return kind(
            error_code=NOT_TOPIC if resource.resource_type == TOPIC_RESOURCE else NOT_CLUSTER,
            error_message=DENIED,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )

    return refuse


def _list_offsets_refusal(topic: offset_messages.ListOffsetsTopic) -> offset_messages.ListOffsetsTopicResponse:
    result = offset_messages.ListOffsetsPartitionResponse
    partitions = [result(partition_index=requested.partition_index, error_code=NOT_TOPIC) for requested in topic.partitions]
    return offset_messages.ListOffsetsTopicResponse(name=topic.name, partitions=partitions)


def _delete_records_refusal(topic: offset_messages.DeleteRecordsTopic) -> offset_messages.DeleteRecordsTopicResult:
    result = offset_messages.DeleteRecordsPartitionResult
    partitions = [
        result(partition_index=requested.partition_index, low_watermark=-1, error_code=NOT_TOPIC)
        for requested in topic.partitions
    ]
    return offset_messages.DeleteRecordsTopicResult(name=topic.name, partitions=partitions)


def _epochs_refusal(topic: offset_messages.OffsetForLeaderTopic) -> offset_messages.OffsetForLeaderTopicResult:
    result = offset_messages.EpochEndOffset
    partitions = [result(partition=requested.partition, error_code=NOT_TOPIC) for requested in topic.partitions]
    return offset_messages.OffsetForLeaderTopicResult(topic=topic.topic, partitions=partitions)


def _producers_refusal(topic: cluster_messages.TopicRequest) -> cluster_messages.TopicResponse:
    result = cluster_messages.PartitionResponse
    partitions = [
        result(partition_index=number, error_code=NOT_TOPIC, error_message=DENIED) for number in topic.partition_indexes
    ]
    return cluster_messages.TopicResponse(name=topic.name, partitions=partitions)


def _acl_creation_refusal(request: acls_messages.CreateAclsRequest) -> acls_messages.CreateAclsResponse:
    result = acls_messages.AclCreationResult
    return acls_messages.CreateAclsResponse(
        results=[result(error_code=NOT_CLUSTER, error_message=DENIED) for _ in request.creations]
    )


def _acl_deletion_refusal(request: acls_messages.DeleteAclsRequest) -> acls_messages.DeleteAclsResponse:
    result = acls_messages.DeleteAclsFilterResult
    return acls_messages.DeleteAclsResponse(
        filter_results=[result(error_code=NOT_CLUSTER, error_message=DENIED) for _ in request.filters]
    )


def _quotas_refusal(request: quota_messages.AlterClientQuotasRequest) -> quota_messages.AlterClientQuotasResponse:
    response = quota_messages.AlterClientQuotasResponse()
    for entry in request.entries:
        named = quota_messages.AlterClientQuotasResponseEntityData
        entity = [named(entity_type=component.entity_type, entity_name=component.entity_name) for component in entry.entity]
        response.entries.append(
            quota_messages.AlterClientQuotasResponseEntryData(error_code=NOT_CLUSTER, error_message=DENIED, entity=entity)
        )
    return response


def _credentials_refusal(
    request: sasl_messages.AlterUserScramCredentialsRequest,
) -> sasl_messages.AlterUserScramCredentialsResponse:
    names = [changeult.name for changeult in request.deletions] + [changeult.name for changeult in request.upsertions]
    result = sasl_messages.AlterUserScramCredentialsResult
    results = [result(user=name, error_code=NOT_CLUSTER, error_message=DENIED) for name in dict.fromkeys(names)]
    return sasl_messages.AlterUserScramCredentialsResponse(results=results)


def _log_dirs_refusal(request: quorum_messages.AlterReplicaLogDirsRequest) -> quorum_messages.AlterReplicaLogDirsResponse:
    response = quorum_messages.AlterReplicaLogDirsResponse()
    result = quorum_messages.AlterReplicaLogDirPartitionResult
    for topic in (topic for directory in request.dirs for topic in directory.topics):
        refused = [result(partition_index=number, error_code=NOT_CLUSTER) for number in topic.partitions]
        response.results.append(quorum_messages.AlterReplicaLogDirTopicResult(topic_name=topic.name, partitions=refused))
    return response


TOPIC_GUARDS: Final[dict[int, Guard]] = {
    keys.METADATA: _metadata,
    keys.DESCRIBE_CLUSTER: _describe_cluster,
    keys.DESCRIBE_TOPIC_PARTITIONS: _describe_topic_partitions,
    keys.LIST_OFFSETS: each_topic(Operation.DESCRIBE, _list_offsets_refusal),
    keys.OFFSET_FOR_LEADER_EPOCH: each_topic(Operation.DESCRIBE, _epochs_refusal),
    keys.DESCRIBE_PRODUCERS: each_topic(Operation.READ, _producers_refusal),
    keys.DELETE_RECORDS: each_topic(Operation.DELETE, _delete_records_refusal),
    keys.CREATE_TOPICS: each(
        "topics",
        "topics",
        lambda call, topic: may_create(call, topic.name),
        lambda topic: topic_messages.CreatableTopicResult(name=topic.name, error_code=NOT_TOPIC, error_message=DENIED),
    ),
    keys.DELETE_TOPICS: _delete_topics,
    keys.CREATE_PARTITIONS: each_topic(
        Operation.ALTER,
        lambda topic: topic_messages.CreatePartitionsTopicResult(name=topic.name, error_code=NOT_TOPIC, error_message=DENIED),
        answers="results",
    ),
    keys.DESCRIBE_CONFIGS: each(
        "resources",
        "results",
        _may_configure(Operation.DESCRIBE_CONFIGS),
        _refuse_configs(config_messages.DescribeConfigsResult),
    ),
    keys.ALTER_CONFIGS: each(
        "resources",
        "responses",
        _may_configure(Operation.ALTER_CONFIGS),
        _refuse_configs(config_messages.AlterConfigsResourceResponse),
    ),
    keys.INCREMENTAL_ALTER_CONFIGS: each(
        "resources",
        "responses",
        _may_configure(Operation.ALTER_CONFIGS),
        _refuse_configs(config_messages.IncrementalAlterConfigsResourceResponse),
    ),
    keys.LIST_CONFIG_RESOURCES: on_cluster(
        Operation.DESCRIBE_CONFIGS, lambda _: config_messages.ListConfigResourcesResponse(error_code=NOT_CLUSTER)
    ),
    keys.DESCRIBE_LOG_DIRS: on_cluster(
        Operation.DESCRIBE, lambda _: cluster_messages.DescribeLogDirsResponse(error_code=NOT_CLUSTER)
    ),
    keys.ALTER_REPLICA_LOG_DIRS: on_cluster(Operation.ALTER, _log_dirs_refusal),
    keys.DESCRIBE_QUORUM: on_cluster(
        Operation.DESCRIBE, lambda _: quorum_messages.DescribeQuorumResponse(error_code=NOT_CLUSTER, error_message=DENIED)
    ),
    keys.DESCRIBE_ACLS: on_cluster(
        Operation.DESCRIBE, lambda _: acls_messages.DescribeAclsResponse(error_code=NOT_CLUSTER, error_message=DENIED)
    ),
    keys.CREATE_ACLS: on_cluster(Operation.ALTER, _acl_creation_refusal),
    keys.DELETE_ACLS: on_cluster(Operation.ALTER, _acl_deletion_refusal),
    keys.ELECT_LEADERS: on_cluster(Operation.ALTER, lambda _: topic_messages.ElectLeadersResponse(error_code=NOT_CLUSTER)),
    keys.ALTER_PARTITION_REASSIGNMENTS: on_cluster(
        Operation.ALTER,
        lambda _: topic_messages.AlterPartitionReassignmentsResponse(error_code=NOT_CLUSTER, error_message=DENIED),
    ),
    keys.LIST_PARTITION_REASSIGNMENTS: on_cluster(
        Operation.DESCRIBE,
        lambda _: topic_messages.ListPartitionReassignmentsResponse(error_code=NOT_CLUSTER, error_message=DENIED),
    ),
    keys.DESCRIBE_CLIENT_QUOTAS: on_cluster(
        Operation.DESCRIBE_CONFIGS,
        lambda _: quota_messages.DescribeClientQuotasResponse(error_code=NOT_CLUSTER, error_message=DENIED, entries=None),
    ),
    keys.ALTER_CLIENT_QUOTAS: on_cluster(Operation.ALTER_CONFIGS, _quotas_refusal),
    keys.DESCRIBE_USER_SCRAM_CREDENTIALS: on_cluster(
        Operation.DESCRIBE,
        lambda _: sasl_messages.DescribeUserScramCredentialsResponse(error_code=NOT_CLUSTER, error_message=DENIED),
    ),
    keys.ALTER_USER_SCRAM_CREDENTIALS: on_cluster(Operation.ALTER, _credentials_refusal),
}
