"""/quotas: how much users and clients may produce, fetch and change per second; the same that AlterClientQuotas sets."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from penstock.broker import Operation
from penstock.broker.quotas import CHANGES_QUOTA, FETCH_QUOTA, KEYS, NAME_SIZE_MAX, PRODUCE_QUOTA, QuotaEntity
from penstock.server.http.node_context import NodeContext
from penstock.server.http.route import Call, Done, Nothing, RequestModel, Resource, ResponseModel, Route

_NAME: Final = msgspec.Meta(max_length=NAME_SIZE_MAX, description="empty is all others without one of their own, null is any")
EntityName = Annotated[str, _NAME] | None
ByteRate = Annotated[int, msgspec.Meta(ge=1, le=(1 << 53) - 1)] | None
ChangeRate = Annotated[float, msgspec.Meta(gt=0)] | None


class QuotaBody(RequestModel, frozen=True, kw_only=True):
    """All quotas of a user, a client id, or both; null is no limit, and an entity without any has none."""

    user: EntityName = None
    client: EntityName = None
    producer_byte_rate: ByteRate = None
    consumer_byte_rate: ByteRate = None
    controller_mutation_rate: ChangeRate = None


class QuotaView(ResponseModel, frozen=True):
    """The quotas of a user, a client id, or both."""

    user: str | None
    client: str | None
    producer_byte_rate: int | None
    consumer_byte_rate: int | None
    controller_mutation_rate: float | None


class QuotasView(ResponseModel, frozen=True):
    """All quotas. `produce_bytes_per_s` and `fetch_bytes_per_s` are settings of the node, for all other clients."""

    items: list[QuotaView]
    produce_bytes_per_s: float | None
    fetch_bytes_per_s: float | None


class QuotaResource(Resource):
    """Quotas."""

    def __init__(self, context: NodeContext) -> None:
        self._context = context

    def routes(self) -> list[Route]:
        """The routes of this resource."""
        return [
            Route("GET", "/quotas", self.show, "quotas of users and client ids"),
            Route("PUT", "/quotas", self.change, "set all quotas of a user, a client id, or both; none deletes them", (422,)),
        ]

    async def show(self, call: Call[Nothing, Nothing, Nothing]) -> QuotasView:
        """GET /quotas."""
        call.caller.check_cluster(Operation.DESCRIBE_CONFIGS)
        options = self._context.broker.options
        entities = sorted(self._context.broker.quotas.entities(), key=lambda item: (item[0].user or "", item[0].client or ""))
        return QuotasView(
            items=[_view(entity, quotas) for entity, quotas in entities],
            produce_bytes_per_s=options.produce_bytes_per_s,
            fetch_bytes_per_s=options.fetch_bytes_per_s,
        )

    async def change(self, call: Call[Nothing, Nothing, QuotaBody]) -> Done:
        """PUT /quotas."""
        call.caller.check_cluster(Operation.ALTER_CONFIGS)
        body = call.body
        wanted = {name: getattr(body, name) for name in KEYS}
        sets = {name: float(value) for name, value in wanted.items() if value is not None}
        await self._context.broker.quotas.change(QuotaEntity(body.user, body.client), sets, frozenset(wanted) - sets.keys())
        return Done()


def _view(entity: QuotaEntity, quotas: dict[str, float]) -> QuotaView:
    produce, fetch = quotas.get(PRODUCE_QUOTA), quotas.get(FETCH_QUOTA)
    return QuotaView(
        user=entity.user,
        client=entity.client,
        producer_byte_rate=None if produce is None else int(produce),
        consumer_byte_rate=None if fetch is None else int(fetch),
        controller_mutation_rate=quotas.get(CHANGES_QUOTA),
    )
