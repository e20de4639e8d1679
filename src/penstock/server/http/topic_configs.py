"""/topics/{name}/config: the configurations of a topic, set or inherited."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from penstock.broker import (
    TOPIC_CONFIG_KEYS,
    ConfigFormName,
    InvalidConfigError,
    Operation,
    TopicConfig,
    check_not_internal,
    config_form,
)
from penstock.server.http.node_context import NodeContext
from penstock.server.http.route import Call, Nothing, Page, RequestModel, Resource, ResponseModel, Route
from penstock.server.http.topics import TopicNames, topic_for

Source = Literal["topic", "broker", "default"]


class ConfigView(ResponseModel, frozen=True):
    """One key of the configuration of a topic: its value, where that comes from, and what may be set. `kind` is its type in
    Kafka, `form` what the value means: a duration is in ms, a size in bytes."""

    name: str
    value: str
    default: Annotated[str, msgspec.Meta(description="the value without a setting of the topic")]
    is_default: bool
    source: Annotated[Source, msgspec.Meta(description="set for the topic, for all topics of the broker, or not at all")]
    kind: str
    form: ConfigFormName
    choices: Annotated[list[str], msgspec.Meta(description="the words that are allowed; empty if any text or number is")]
    low: int | None
    high: int | None
    unlimited: Annotated[str | None, msgspec.Meta(description="the value that means: no limit")]
    has_effect: Annotated[bool, msgspec.Meta(description="false if it is only accepted for tools of Kafka")]
    doc: str


class ConfigChange(RequestModel, frozen=True):
    """Keys to set, and keys to reset to their defaults. With `validate_only` they are checked, and the answer is the
    configuration that would result."""

    set: dict[str, str] = msgspec.field(default_factory=dict)
    unset: list[str] = msgspec.field(default_factory=list)
    validate_only: bool = False


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
        return _view(topic_for(self._context, call.caller, Operation.DESCRIBE_CONFIGS, call.names.name).config)

    async def change(self, call: Call[TopicNames, Nothing, ConfigChange]) -> Page[ConfigView]:
        """PATCH /topics/{name}/config."""
        topic = topic_for(self._context, call.caller, Operation.ALTER_CONFIGS, call.names.name)
        both = call.body.set.keys() & set(call.body.unset)
        if both:
            raise InvalidConfigError(f"{min(both)} is both set and unset; choose one")
        config = topic.config.changed(call.body.set, frozenset(call.body.unset))
        if call.body.validate_only:
            check_not_internal(topic.name)
            return _view(config)
        return _view((await self._context.broker.configure_topic(topic.name, config)).config)


def _view(config: TopicConfig) -> Page[ConfigView]:
    items = [
        ConfigView(
            name=name,
            value=config[name],
            default=config.defaults.get(name, key.default),
            is_default=name not in config.own,
            source="topic" if name in config.own else "broker" if name in config.defaults else "default",
            kind=key.kind,
            **config_form(name)._asdict(),
            doc=key.doc,
        )
        for name, key in sorted(TOPIC_CONFIG_KEYS.items())
    ]
    return Page(items, len(items))
