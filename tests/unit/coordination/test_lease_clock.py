"""How long a lease is believed, and when it is renewed."""

from __future__ import annotations

import random

import pytest

from penstock.coordination.lease_clock import LeaseClock, renewal_timeout_s


def test_belief_ends_a_tenth_before_the_lease_counted_from_the_sending() -> None:
    clock = LeaseClock(10.0, sent_at=100.0)
    assert clock.is_believed(108.9)
    assert not clock.is_believed(109.0)
    clock.note_renewed(sent_at=103.0, ttl_s=10.0)
    assert clock.believed_until == 112.0


def test_a_late_answer_to_an_early_renewal_does_not_shorten_the_lease() -> None:
    clock = LeaseClock(10.0, sent_at=100.0)
    clock.note_renewed(sent_at=106.0, ttl_s=10.0)
    clock.note_renewed(sent_at=103.0, ttl_s=10.0)
    assert clock.believed_until == 115.0


def test_a_renewal_is_due_after_a_third_and_soon_after_one_that_failed() -> None:
    clock = LeaseClock(9.0, sent_at=100.0)
    assert clock.wait_s(100.0) == 3.0
    clock.note_failed(103.5)
    assert clock.wait_s(103.5) == pytest.approx(0.1)
    clock.note_renewed(sent_at=103.6, ttl_s=9.0)
    assert clock.wait_s(103.6) == 3.0
    assert clock.wait_s(200.0) == 0.0


def test_there_is_time_for_several_attempts_before_belief_ends() -> None:
    for ttl_s in (2.0, 5.0, 10.0, 60.0):
        clock, now, attempts = LeaseClock(ttl_s, 0.0), 0.0, 0
        while True:
            now += clock.wait_s(now)
            if not clock.is_believed(now):
                break
            now += renewal_timeout_s(ttl_s)
            clock.note_failed(now)
            attempts += 1
        assert attempts >= 3


def test_belief_never_outlives_the_lease_of_the_store() -> None:
    rng = random.Random(1)
    for _ in range(200):
        ttl_s = rng.uniform(1, 20)
        sent_at = rng.uniform(0, 100)
        clock = LeaseClock(ttl_s, sent_at)
        store_ends_at = sent_at + rng.uniform(0, ttl_s) + ttl_s
        for _ in range(10):
            sent_at += rng.uniform(0, ttl_s / 2)
            received_at = sent_at + rng.uniform(0, ttl_s / 2)
            if received_at >= store_ends_at:
                break  # the store answers that it has ended
            store_ends_at = max(store_ends_at, received_at + ttl_s)
            clock.note_renewed(sent_at, ttl_s)
        assert clock.believed_until < store_ends_at
