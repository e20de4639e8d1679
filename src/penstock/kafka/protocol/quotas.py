"""Quotas of clients."""

from __future__ import annotations

from penstock.kafka.protocol.fields import Message, array, boolean, float64, int8, int16, int32, string


class ComponentData(Message):
    """One item of `DescribeClientQuotasRequest.components`."""

    entity_type: str = string()
    match_type: int = int8()
    match: str | None = string(nullable="0+")


class DescribeClientQuotasRequest(Message):
    """Asks for the quotas that match a filter."""

    components: list[ComponentData] = array(ComponentData)
    strict: bool = boolean()


class DescribeClientQuotasEntityData(Message):
    """One item of `DescribeClientQuotasEntryData.entity`."""

    entity_type: str = string()
    entity_name: str | None = string(nullable="0+")


class ValueData(Message):
    """One item of `DescribeClientQuotasEntryData.values`."""

    key: str = string()
    value: float = float64()


class DescribeClientQuotasEntryData(Message):
    """One item of `DescribeClientQuotasResponse.entries`."""

    entity: list[DescribeClientQuotasEntityData] = array(DescribeClientQuotasEntityData)
    values: list[ValueData] = array(ValueData)


class DescribeClientQuotasResponse(Message):
    """The quotas found."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    entries: list[DescribeClientQuotasEntryData] | None = array(DescribeClientQuotasEntryData, nullable="0+")


class AlterClientQuotasRequestEntityData(Message):
    """One item of `AlterClientQuotasRequestEntryData.entity`."""

    entity_type: str = string()
    entity_name: str | None = string(nullable="0+")


class OpData(Message):
    """One item of `AlterClientQuotasRequestEntryData.ops`."""

    key: str = string()
    value: float = float64()
    remove: bool = boolean()


class AlterClientQuotasRequestEntryData(Message):
    """One item of `AlterClientQuotasRequest.entries`."""

    entity: list[AlterClientQuotasRequestEntityData] = array(AlterClientQuotasRequestEntityData)
    ops: list[OpData] = array(OpData)


class AlterClientQuotasRequest(Message):
    """Sets or removes quotas."""

    entries: list[AlterClientQuotasRequestEntryData] = array(AlterClientQuotasRequestEntryData)
    validate_only: bool = boolean()


class AlterClientQuotasResponseEntityData(Message):
    """One item of `AlterClientQuotasResponseEntryData.entity`."""

    entity_type: str = string()
    entity_name: str | None = string(nullable="0+")


class AlterClientQuotasResponseEntryData(Message):
    """One item of `AlterClientQuotasResponse.entries`."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    entity: list[AlterClientQuotasResponseEntityData] = array(AlterClientQuotasResponseEntityData)


class AlterClientQuotasResponse(Message):
    """Whether each entity was changed."""

    throttle_time_ms: int = int32()
    entries: list[AlterClientQuotasResponseEntryData] = array(AlterClientQuotasResponseEntryData)
