"""The clock that messages age by: it follows the machine's, and no jump of that carries it along."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from random import Random

import pytest

from penstock.broker.age_clock import BACK_MAX_S, OFF_CREDIT_S, AgeClock
from penstock.tablet import Request, Result, Write

DAY_S = 86400.0
EPOCH_S = 1_700_000_000.0


class HandClock:
    """A machine's clocks, moved by hand."""

    def __init__(self) -> None:
        self.passed_s = 0.0
        self.set_by_s = 0.0

    def monotonic(self) -> float:
        return self.passed_s

    def wall(self) -> float:
        return EPOCH_S + self.passed_s + self.set_by_s


class Table:
    """What a system tablet keeps."""

    generation = 1

    def __init__(self) -> None:
        self.kept: dict[bytes, bytes] = {}

    async def execute(self, request: Request) -> list[Result]:
        for command in request.commands:
            assert isinstance(command, Write)
            assert isinstance(command.value, bytes)
            self.kept[command.key] = command.value
        return [None]

    def head(self, key: bytes) -> bytes | None:
        return self.kept.get(key)

    def keys(self, begin: bytes, end: bytes | None) -> Iterator[bytes]:
        return iter(())


@pytest.fixture
def machine() -> HandClock:
    return HandClock()


@pytest.fixture
def table() -> Table:
    return Table()


def test_it_is_the_machines_clock_as_long_as_that_is_steady(machine: HandClock, table: Table) -> None:
    ages = AgeClock(table, machine)
    for _ in range(100):
        machine.passed_s += 30.0
        assert ages.wall() == machine.wall()
        assert ages.behind_s == 0.0
    assert ages.monotonic() == machine.monotonic()


def test_a_jump_forward_is_followed_at_twice_the_speed_of_time(machine: HandClock, table: Table) -> None:
    ages = AgeClock(table, machine)
    machine.passed_s += 60.0
    machine.set_by_s = 8 * DAY_S
    assert ages.wall() == EPOCH_S + 120.0
    assert ages.behind_s == pytest.approx(8 * DAY_S - 60.0)
    machine.passed_s += 4 * DAY_S
    assert ages.behind_s == pytest.approx(4 * DAY_S - 60.0)
    machine.passed_s += 4 * DAY_S
    assert ages.wall() == machine.wall()


def test_a_clock_that_is_set_right_again_is_followed_at_once(machine: HandClock, table: Table) -> None:
    ages = AgeClock(table, machine)
    machine.set_by_s = 8 * DAY_S
    for _ in range(10):
        machine.passed_s += 30.0
        ages.wall()
    machine.set_by_s = 0.0
    assert ages.wall() == machine.wall()
    assert ages.behind_s == 0.0


def test_what_was_stamped_while_the_clock_was_behind_is_not_old_when_it_is_right_again(machine: HandClock, table: Table) -> None:
    ages = AgeClock(table, machine)
    machine.set_by_s = -8 * DAY_S
    machine.passed_s += 60.0
    stamped_s = machine.wall()
    assert ages.wall() == stamped_s
    machine.set_by_s = 0.0
    machine.passed_s += 60.0
    assert ages.wall() - stamped_s == 120.0
    machine.passed_s += 9 * DAY_S
    assert ages.wall() == machine.wall()


def test_a_machine_that_wakes_in_1970_does_not_keep_everything_for_ever(machine: HandClock, table: Table) -> None:
    ages = AgeClock(table, machine)
    machine.set_by_s = -EPOCH_S
    machine.passed_s += 60.0
    assert ages.wall() == machine.wall(), "nothing is old by a clock that is behind everything"
    machine.set_by_s = 0.0
    machine.passed_s += 60.0
    assert ages.behind_s <= BACK_MAX_S
    machine.passed_s += BACK_MAX_S
    assert ages.wall() == machine.wall()


def test_a_start_with_a_clock_that_is_days_ahead_goes_on_from_what_was_stored(machine: HandClock, table: Table) -> None:
    first = AgeClock(table, machine)
    machine.passed_s += 100.0
    asyncio.run(first.store())
    assert table.kept == {b"w": bytes.fromhex("01 0000018bcfe6eea0")}, "the stored form must not drift"
    machine.set_by_s = 8 * DAY_S
    again = AgeClock(table, machine)
    assert again.behind_s == pytest.approx(8 * DAY_S - OFF_CREDIT_S)
    machine.set_by_s = OFF_CREDIT_S / 2
    assert AgeClock(table, machine).behind_s == 0.0, "a node may be off for a while"


def test_it_goes_by_the_machine_at_once_when_someone_says_that_is_right(machine: HandClock, table: Table) -> None:
    ages = AgeClock(table, machine)
    machine.set_by_s = 8 * DAY_S
    assert asyncio.run(ages.confirm()) == pytest.approx(8 * DAY_S)
    assert ages.wall() == machine.wall()
    assert AgeClock(table, machine).behind_s == 0.0


@pytest.mark.parametrize("seed", range(50))
def test_whatever_the_clock_does_a_message_stays_for_half_of_its_retention(seed: int, machine: HandClock, table: Table) -> None:
    """Within thirty days, which is as far back as it follows."""
    random = Random(seed)
    ages = AgeClock(table, machine)
    retention_s = 7 * DAY_S
    stamps: list[tuple[float, float]] = []
    for _ in range(400):
        machine.passed_s += random.uniform(0, 8 * 3600.0)
        if random.random() < 0.1:
            machine.set_by_s = random.uniform(-10, 10) * DAY_S
        ages.wall()
        stamps.append((machine.wall(), machine.passed_s))
        oldest_s = ages.wall() - retention_s
        gone = [written_s for stamp_s, written_s in stamps if stamp_s < oldest_s]
        assert all(machine.passed_s - written_s >= retention_s / 2 for written_s in gone)
