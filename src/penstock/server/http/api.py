"""All routes of the admin API."""

from __future__ import annotations

from penstock.server.http.cluster import ClusterResource
from penstock.server.http.consumer_directory import ConsumerDirectory
from penstock.server.http.consumers import ConsumerResource
from penstock.server.http.history import HistoryResource
from penstock.server.http.messages import MessageResource
from penstock.server.http.overview import OverviewResource
from penstock.server.http.pipelines import PipelineResource
from penstock.server.http.produce import ProduceResource
from penstock.server.http.queues import QueueResource
from penstock.server.http.registrations import RegistrationResource
from penstock.server.http.route import Resource
from penstock.server.http.served import Served
from penstock.server.http.settings import SettingResource
from penstock.server.http.storage import StorageResource
from penstock.server.http.streams import StreamResource
from penstock.server.http.tail import TailResource
from penstock.server.http.topic_configs import TopicConfigResource
from penstock.server.http.topics import TopicResource
from penstock.server.http.users import UserResource


def api_resources(served: Served) -> list[Resource]:
    """Every part of the API."""
    directory = ConsumerDirectory(served)
    return [
        ClusterResource(served, directory),
        OverviewResource(served, directory),
        HistoryResource(served),
        TopicResource(served),
        TopicConfigResource(served),
        MessageResource(served),
        TailResource(served),
        ProduceResource(served),
        ConsumerResource(served, directory),
        QueueResource(served),
        RegistrationResource(served, directory),
        StorageResource(served),
        StreamResource(served, directory),
        PipelineResource(served),
        SettingResource(served),
        UserResource(served),
    ]
