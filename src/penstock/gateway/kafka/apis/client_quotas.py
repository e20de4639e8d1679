"""DescribeClientQuotas and AlterClientQuotas: how much users and clients may do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from penstock.broker.quotas import InvalidQuotaError, QuotaEntity
from penstock.core.errors import PenstockError
from penstock.gateway.kafka.call import Call
from penstock.gateway.kafka.error_codes import code_of
from penstock.kafka.protocol.quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntityData,
    AlterClientQuotasResponseEntryData,
    ComponentData,
    DescribeClientQuotasEntityData,
    DescribeClientQuotasEntryData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    ValueData,
)

USER, CLIENT, ADDRESS = "user", "client-id", "ip"
EXACT, BY_DEFAULT, ANY = range(3)
DEFAULT: Final = ""


class _EntityComponent(Protocol):
    entity_type: str
    entity_name: str | None


async def describe_client_quotas(call: Call, request: DescribeClientQuotasRequest) -> DescribeClientQuotasResponse:
    """The quotas of all matching entities."""
    try:
        _check_components(request.components)
    except InvalidQuotaError as error:
        return DescribeClientQuotasResponse(error_code=code_of(error), error_message=str(error), entries=None)
    entries = []
    for entity, quotas in call.node.broker.quotas.entities():
        if _matches(entity, request):
            values = [ValueData(key=name, value=value) for name, value in sorted(quotas.items())]
            entries.append(DescribeClientQuotasEntryData(entity=_described(entity), values=values))
    return DescribeClientQuotasResponse(error_message=None, entries=entries)


async def alter_client_quotas(call: Call, request: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
    """Set and remove quotas, each entity for itself."""
    response = AlterClientQuotasResponse()
    for entry in request.entries:
        result = AlterClientQuotasResponseEntryData(
            error_message=None,
            entity=[
                AlterClientQuotasResponseEntityData(entity_type=component.entity_type, entity_name=component.entity_name)
                for component in entry.entity
            ],
        )
        response.entries.append(result)
        try:
            await _alter(call, entry, validate_only=request.validate_only)
        except PenstockError as error:
            result.error_code, result.error_message = code_of(error), str(error)
    return response


async def _alter(call: Call, entry: AlterClientQuotasRequestEntryData, *, validate_only: bool) -> None:
    quotas = call.node.broker.quotas
    entity = _entity(entry.entity)
    names = [change.key for change in entry.ops]
    if len(set(names)) < len(names):
        raise InvalidQuotaError("a quota is named more than once")
    sets = {change.key: change.value for change in entry.ops if not change.remove}
    if validate_only:
        quotas.check(entity, sets)
        return
    await quotas.change(entity, sets, frozenset(change.key for change in entry.ops if change.remove))


def _entity(named: Sequence[_EntityComponent]) -> QuotaEntity:
    parts: dict[str, str] = {}
    for component in named:
        if component.entity_type in parts:
            raise InvalidQuotaError(f"{component.entity_type!r} is named more than once")
        if component.entity_name == DEFAULT:
            raise InvalidQuotaError(f"the name of a {component.entity_type!r} is empty; null stands for the default")
        _check_type(component.entity_type)
        parts[component.entity_type] = DEFAULT if component.entity_name is None else component.entity_name
    return QuotaEntity(parts.get(USER), parts.get(CLIENT))


def _check_type(entity_type: str) -> None:
    if entity_type == ADDRESS:
        raise InvalidQuotaError("quotas are for users and client ids; connections by ip are not limited")
    if entity_type not in (USER, CLIENT):
        raise InvalidQuotaError(f"quotas are for {USER!r} and {CLIENT!r}, not for {entity_type!r}")


def _check_components(components: list[ComponentData]) -> None:
    types = [component.entity_type for component in components]
    if len(set(types)) < len(types):
        raise InvalidQuotaError("a kind of entity is named more than once")
    for component in components:
        if component.entity_type != ADDRESS:
            _check_type(component.entity_type)
        if component.match_type not in (EXACT, BY_DEFAULT, ANY) or (component.match_type == EXACT and not component.match):
            raise InvalidQuotaError("a filter asks for one name, for the default, or for any")


def _matches(entity: QuotaEntity, request: DescribeClientQuotasRequest) -> bool:
    parts = {USER: entity.user, CLIENT: entity.client}
    for component in request.components:
        name = parts.pop(component.entity_type, None)
        if name is None or (component.match_type == EXACT and name != component.match):
            return False
        if component.match_type == BY_DEFAULT and name != DEFAULT:
            return False
    return not request.strict or all(name is None for name in parts.values())


def _described(entity: QuotaEntity) -> list[DescribeClientQuotasEntityData]:
    parts = ((USER, entity.user), (CLIENT, entity.client))
    return [
        DescribeClientQuotasEntityData(entity_type=kind, entity_name=name or None) for kind, name in parts if name is not None
    ]
