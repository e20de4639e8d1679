"""/topics/{name}/clone: creates an empty topic with the partitions, settings and, if asked, the access rules of another."""

from __future__ import annotations

from typing import Annotated

import msgspec

from penstock.broker import CLUSTER_NAME, Operation, ResourceKind, RuleFilter, RulePattern, TopicConfig
from penstock.server.http.errors import NotSupportedHereError
from penstock.server.http.node_context import NodeContext
from penstock.server.http.route import Call, Nothing, RequestModel, Resource, ResponseModel, Route
from penstock.server.http.topics import PartitionCount, TopicName, TopicNames, topic_for


class CloneRequest(RequestModel, frozen=True, kw_only=True):
    """The new topic. Without a number of partitions it has as many as the other."""

    name: TopicName
    partitions: PartitionCount | None = None
    access_rules: Annotated[bool, msgspec.Meta(description="copy the rules that name the topic; those of a prefix stay")] = False


class CloneResult(ResponseModel, frozen=True):
    """The new topic, what was set for it, and how many access rules were copied."""

    name: str
    partitions: int
    config: dict[str, str]
    access_rules: int


class TopicCloneResource(Resource):
    """Clones of topics."""

    def __init__(self, context: NodeContext) -> None:
        self._context = context
        self._broker = context.broker

    def routes(self) -> list[Route]:
        """The routes of this resource."""
        summary = "create a topic with the partitions and settings of this one, without its messages"
        return [Route("POST", "/topics/{name}/clone", self.clone, summary, (404, 409, 422))]

    async def clone(self, call: Call[TopicNames, Nothing, CloneRequest]) -> CloneResult:
        """POST /topics/{name}/clone. Who copies access rules must be allowed to add them, which is checked before anything is
        created."""
        caller, wanted = call.caller, call.body
        source = topic_for(self._context, caller, Operation.DESCRIBE_CONFIGS, call.names.name)
        if not caller.may(Operation.CREATE, ResourceKind.CLUSTER, CLUSTER_NAME):
            caller.check_topic(Operation.CREATE, wanted.name)
        access = self._broker.access
        if wanted.access_rules:
            caller.check_cluster(Operation.ALTER)
            if access is None:
                raise NotSupportedHereError("the node runs without sasl: there are no access rules to copy")
        partitions = source.partitions if wanted.partitions is None else wanted.partitions
        topic = await self._broker.create_topic(wanted.name, partitions, TopicConfig(source.config.own), source.replicas)
        rules = []
        if wanted.access_rules and access is not None:
            named = RuleFilter(kind=ResourceKind.TOPIC, name=source.name, pattern=RulePattern.LITERAL)
            rules = [rule._replace(name=topic.name) for rule in access.rules.matching(named)]
            await access.rules.add(rules)
        return CloneResult(name=topic.name, partitions=topic.partitions, config=dict(topic.config.own), access_rules=len(rules))
