"""Quotas: whose counts, who shares it, and how long someone waits."""

from __future__ import annotations

import pytest

from penstock.broker.quotas import CHANGES_QUOTA, FETCH_QUOTA, PRODUCE_QUOTA, InvalidQuotaError, QuotaEntity, Quotas, RateLimit
from tests.sim_tablet import SimNode, on_node

DEFAULT = ""
# From the most specific to the least, as Kafka has it.
BY_PRECEDENCE = [
    QuotaEntity("anna", "app"),
    QuotaEntity("anna", DEFAULT),
    QuotaEntity("anna", None),
    QuotaEntity(DEFAULT, "app"),
    QuotaEntity(DEFAULT, DEFAULT),
    QuotaEntity(DEFAULT, None),
    QuotaEntity(None, "app"),
    QuotaEntity(None, DEFAULT),
]


class HandClock:
    """Time that passes when the test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return self.now


def test_the_most_specific_quota_counts() -> None:
    async def scenario(node: SimNode) -> list[float]:
        quotas = Quotas(await node.kv(1), {PRODUCE_QUOTA: 9}, HandClock())
        for rank, entity in enumerate(BY_PRECEDENCE, start=1):
            await quotas.change(entity, {PRODUCE_QUOTA: rank})
        seen = []
        for entity in BY_PRECEDENCE:
            seen.append(size(quotas))
            await quotas.change(entity, {}, frozenset({PRODUCE_QUOTA}))
        return [*seen, size(quotas)]

    def size(quotas: Quotas) -> float:
        limit = quotas.limit(PRODUCE_QUOTA, "anna", "app")
        assert limit is not None
        return limit.size

    assert on_node(scenario) == [1, 2, 3, 4, 5, 6, 7, 8, 9]


@pytest.mark.parametrize(
    ("entity", "shared", "apart"),
    [
        (QuotaEntity("anna", None), [("anna", "one"), ("anna", "two")], ("ben", "one")),
        (QuotaEntity(DEFAULT, None), [("anna", "one"), ("anna", "two")], ("ben", "one")),
        (QuotaEntity(None, DEFAULT), [("anna", "one"), ("ben", "one")], ("anna", "two")),
        (QuotaEntity(DEFAULT, DEFAULT), [("anna", "one"), ("anna", "one")], ("anna", "two")),
    ],
)
def test_who_shares_a_quota(entity: QuotaEntity, shared: list[tuple[str, str]], apart: tuple[str, str]) -> None:
    async def scenario(node: SimNode) -> None:
        quotas = Quotas(await node.kv(1), {}, HandClock())
        await quotas.change(entity, {FETCH_QUOTA: 100})
        first, second = (quotas.limit(FETCH_QUOTA, *who) for who in shared)
        assert first is not None
        assert first is second
        assert quotas.limit(FETCH_QUOTA, *apart) is not first
        assert quotas.limit(PRODUCE_QUOTA, *shared[0]) is None

    on_node(scenario)


def test_quotas_outlive_a_restart() -> None:
    async def scenario(node: SimNode) -> list[tuple[QuotaEntity, dict[str, float]]]:
        quotas = Quotas(await node.kv(1), {}, HandClock())
        await quotas.change(QuotaEntity("anna", DEFAULT), {PRODUCE_QUOTA: 5, FETCH_QUOTA: 6})
        await quotas.change(QuotaEntity("anna", DEFAULT), {CHANGES_QUOTA: 0.5}, frozenset({FETCH_QUOTA}))
        await quotas.change(QuotaEntity(None, "app"), {FETCH_QUOTA: 7})
        await quotas.change(QuotaEntity(None, "app"), {}, frozenset({FETCH_QUOTA}))
        await node.close()
        node.start()
        kept = Quotas(await node.kv(2), {}, HandClock())
        assert (kept.limits_produce, kept.limits_fetch, kept.limits_changes) == (True, False, True)
        return kept.entities()

    assert on_node(scenario) == [(QuotaEntity("anna", DEFAULT), {PRODUCE_QUOTA: 5, CHANGES_QUOTA: 0.5})]


@pytest.mark.parametrize(
    ("entity", "quotas"),
    [
        (QuotaEntity(), {PRODUCE_QUOTA: 1}),
        (QuotaEntity("anna"), {PRODUCE_QUOTA: 0}),
        (QuotaEntity("anna"), {PRODUCE_QUOTA: 1.5}),
        (QuotaEntity("anna"), {PRODUCE_QUOTA: float("nan")}),
        (QuotaEntity("anna"), {"request_percentage": 50}),
        (QuotaEntity("anna"), {"no_such_rate": 50}),
        (QuotaEntity("a" * 2000), {PRODUCE_QUOTA: 1}),
    ],
)
def test_a_quota_that_cannot_be_had_is_refused(entity: QuotaEntity, quotas: dict[str, float]) -> None:
    async def scenario(node: SimNode) -> None:
        with pytest.raises(InvalidQuotaError):
            await Quotas(await node.kv(1), {}, HandClock()).change(entity, quotas)

    on_node(scenario)


def test_whoever_takes_too_much_waits_until_it_is_made_up_for() -> None:
    clock = HandClock()
    limit = RateLimit(1000, 1.0, clock)
    assert limit.draw(1000) == 0
    assert limit.draw(500) == 500
    assert limit.wait_ms() == 500
    clock.now = 0.4
    assert limit.wait_ms() == 100
    clock.now = 0.5
    assert limit.wait_ms() == 0
    clock.now = 100
    assert limit.draw(1000) == 0
    assert limit.draw(10) == 10
