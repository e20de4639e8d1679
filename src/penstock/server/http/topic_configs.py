"""/topics/{name}/config: the configurations of a topic, set or inherited."""

from __future__ import annotations

import msgspec

from penstock.broker import TOPIC_CONFIG_KEYS, InvalidConfigError, Operation, Topic
from penstock.server.http.node_context import NodeContext
from penstock.server.http.route import Call, Nothing, Page, RequestModel, Resource, ResponseModel, Route
from penstock.server.http.topics import TopicNames, topic_for


class ConfigView(ResponseModel, frozen=True):
    """One key of the configuration of a topic."""

    name: str
    value: str
    default: str
    is_default: bool
    kind: str
    doc: str


class ConfigChange(RequestModel, frozen=True):
    """Keys to set, and keys to reset to their defaults."""

    set: dict[str, str] = msgspec.field(default_factory=dict)
    unset: list[str] = msgspec.field(default_factory=list)


class TopicConfigResource(Resource):
    """Configurations of topics."""

    def __init__(self, context: NodeContext) -> None:
        self._context = context

    def routes(self) -> list[Route]:
        """The routes of this resource."""
        return [
            Route("GET", "/topics/{name}/config", self.show, "the configuration of a topic", (404,)),
            Route("PATCH", "/topics/{name}/config", self.change, "change it, all of what is asked or nothing", (404, 422)),
        ]

    async def show(self, call: Call[TopicNames, Nothing, Nothing]) -> Page[ConfigView]:
        """GET /topics/{name}/config: every key."""
        return _view(topic_for(self._context, call.caller, Operation.DESCRIBE_CONFIGS, call.names.name))

    async def change(self, call: Call[TopicNames, Nothing, ConfigChange]) -> Page[ConfigView]:
        """PATCH /topics/{name}/config."""
        topic = topic_for(self._context, call.caller, Operation.ALTER_CONFIGS, call.names.name)
        both = call.body.set.keys() & set(call.body.unset)
        if both:
            raise InvalidConfigError(f"{min(both)} is to be set and unset at once; say one of them")
        config = topic.config.changed(call.body.set, frozenset(call.body.unset))
        return _view(await self._context.broker.configure_topic(topic.name, config))


def _view(topic: Topic) -> Page[ConfigView]:
    own = topic.config.own
    items = [
        ConfigView(
            name=name,
            value=topic.config[name],
            default=topic.config.defaults.get(name, key.default),
            is_default=name not in own,
            kind=key.kind,
            doc=key.doc,
        )
        for name, key in sorted(TOPIC_CONFIG_KEYS.items())
    ]
    return Page(items, len(items))
