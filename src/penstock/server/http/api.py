"""All routes of the admin API."""

from __future__ import annotations

from penstock.server.http.access_rules import AccessRuleResource
from penstock.server.http.cluster import ClusterResource
from penstock.server.http.console_peers import ConsolePeerResource
from penstock.server.http.consumer_directory import ConsumerDirectory
from penstock.server.http.consumers import ConsumerResource
from penstock.server.http.deployments import DeploymentResource
from penstock.server.http.history import HistoryResource
from penstock.server.http.messages import MessageResource
from penstock.server.http.node_context import NodeContext
from penstock.server.http.nodes import NodeResource
from penstock.server.http.overview import OverviewResource
from penstock.server.http.pipelines import PipelineResource
from penstock.server.http.produce import ProduceResource
from penstock.server.http.queues import QueueResource
from penstock.server.http.quotas import QuotaResource
from penstock.server.http.registrations import RegistrationResource
from penstock.server.http.route import Resource
from penstock.server.http.schemas import SchemaResource
from penstock.server.http.settings import SettingResource
from penstock.server.http.signed_in import SignedInResource
from penstock.server.http.storage import StorageResource
from penstock.server.http.streams import StreamResource
from penstock.server.http.tail import TailResource
from penstock.server.http.tokens import TokenResource
from penstock.server.http.topic_clone import TopicCloneResource
from penstock.server.http.topic_configs import TopicConfigResource
from penstock.server.http.topic_partitions import TopicPartitionResource
from penstock.server.http.topic_trim import TopicTrimResource
from penstock.server.http.topics import TopicResource
from penstock.server.http.users import UserResource


def api_resources(context: NodeContext) -> list[Resource]:
    """Every part of the API."""
    directory = ConsumerDirectory(context)
    pipelines = PipelineResource(context)
    return [
        ClusterResource(context, directory),
        ConsolePeerResource(context),
        OverviewResource(context, directory),
        HistoryResource(context),
        TopicResource(context),
        TopicPartitionResource(context),
        TopicConfigResource(context),
        TopicCloneResource(context),
        TopicTrimResource(context),
        MessageResource(context),
        TailResource(context),
        ProduceResource(context),
        ConsumerResource(context, directory),
        QueueResource(context),
        RegistrationResource(context, directory),
        StorageResource(context),
        NodeResource(context),
        StreamResource(context, directory),
        pipelines,
        DeploymentResource(context, pipelines),
        SchemaResource(context),
        SettingResource(context),
        UserResource(context),
        TokenResource(context),
        AccessRuleResource(context),
        QuotaResource(context),
        SignedInResource(context),
    ]
