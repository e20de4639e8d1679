"""The pure parts of the interconnect: who may be a peer, how old a frame is, how long to wait before the next attempt."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from penstock.interconnect.backoff import Backoff
from penstock.interconnect.errors import PeerRefusedError, ProtocolError, RefusalReason
from penstock.interconnect.frame_age import WINDOW_MS, FrameAge
from penstock.interconnect.hello import VERSION_MAX, Admission, Hello, NodeIdentity, Role

CLUSTER = b"c" * 16
OWN = NodeIdentity(CLUSTER, 1, 10, level_min=3, level_max=5)
OTHER = NodeIdentity(CLUSTER, 2, 10, level_min=4, level_max=7)


class Clock:
    """Clocks that a test sets."""

    def __init__(self, wall_s: float = 1000.0) -> None:
        self.wall_s = wall_s

    def monotonic(self) -> float:
        return 0.0

    def wall(self) -> float:
        return self.wall_s


def admission(wall_s: float = 1000.0) -> Admission:
    return Admission(OWN, Clock(wall_s), 60)


def hello_of(identity: NodeIdentity = OTHER, wanted: int = 1) -> Hello:
    return Hello(identity, Role.CALLS, 77, 1_000_000, wanted)


def refusal(hello: Hello, *, expected: int = 0, admits: Admission | None = None) -> tuple[int, str]:
    with pytest.raises(PeerRefusedError) as raised:
        (admits or admission()).admit(hello, expected_node_id=expected)
    return raised.value.reason, str(raised.value)


def test_a_hello_survives_the_wire_and_bytes_of_a_later_version() -> None:
    assert Hello.unpack(hello_of().pack() + b"later") == hello_of()


@pytest.mark.parametrize(
    "damage", [b"", b"XXXX" + hello_of().pack()[4:], hello_of().pack()[:12] + b"\x09" + hello_of().pack()[13:]]
)
def test_what_is_no_hello_is_a_protocol_error(damage: bytes) -> None:
    with pytest.raises(ProtocolError):
        Hello.unpack(damage)


def test_nodes_agree_on_the_highest_common_version_and_level() -> None:
    peer = admission().admit(replace(hello_of(), version_max=VERSION_MAX + 8))
    assert (peer.version, peer.level, peer.session, peer.identity) == (VERSION_MAX, 5, 77, OTHER)


def test_a_node_of_another_cluster_is_refused_without_telling_it_the_id() -> None:
    reason, message = refusal(hello_of(replace(OTHER, cluster_id=b"d" * 16)))
    assert reason == RefusalReason.WRONG_CLUSTER
    assert "different clusters" in message
    assert "cccc" not in message


def test_a_node_with_our_own_id_is_refused() -> None:
    assert refusal(hello_of(replace(OTHER, node_id=1)))[0] == RefusalReason.OWN_ID


def test_an_address_of_another_node_is_refused_on_either_side() -> None:
    assert refusal(hello_of(wanted=9)) == (
        RefusalReason.WRONG_NODE,
        "the address of node 9 is that of node 1; correct the address of one",
    )
    assert refusal(hello_of(), expected=3)[0] == RefusalReason.WRONG_NODE


def test_of_two_processes_with_one_id_the_older_is_refused() -> None:
    admits = admission()
    admits.admit(hello_of())
    admits.admit(hello_of(replace(OTHER, incarnation=11)))
    reason, message = refusal(hello_of(), admits=admits)
    assert reason == RefusalReason.STALE_INCARNATION
    assert "stop one of them" in message


def test_nodes_without_a_common_version_or_level_refuse_each_other() -> None:
    assert refusal(replace(hello_of(), version_min=2, version_max=3))[0] == RefusalReason.VERSION
    reason, message = refusal(hello_of(replace(OTHER, level_min=6)))
    assert reason == RefusalReason.FEATURE_LEVEL
    assert "6 to 7 and 3 to 5" in message


def test_clocks_a_minute_apart_are_refused_and_a_second_is_reported() -> None:
    assert refusal(hello_of(), admits=admission(1061.0))[0] == RefusalReason.CLOCK
    assert admission(1001.0).admit(hello_of()).clock_ahead_s == pytest.approx(-1.0)


def test_a_refused_node_leaves_no_incarnation_behind() -> None:
    admits = admission()
    refusal(hello_of(replace(OTHER, incarnation=99, level_min=6)), admits=admits)
    admits.admit(hello_of())


@pytest.mark.parametrize("apart", [0, 123_456, (1 << 32) - 5])
def test_a_frame_is_as_old_as_it_was_slower_than_the_fastest(apart: int) -> None:
    age = FrameAge()

    def at(sent: int, took: int) -> int:
        return age.age_ms(sent + took, (sent - apart) % (1 << 32))

    assert [at(1000, 5), at(1010, 3), at(1020, 3), at(1030, 503)] == [0, 0, 0, 500]


def test_frames_found_after_a_long_stop_are_old() -> None:
    age = FrameAge()
    assert age.age_ms(1000, 500) == 0
    assert [age.age_ms(1000 + 10 * WINDOW_MS + at, 510 + at) for at in range(3)] == [10 * WINDOW_MS - 10] * 3


def test_clocks_that_drift_apart_do_not_make_frames_old() -> None:
    age = FrameAge()
    ages = [age.age_ms(now + now // 10_000, now % (1 << 32)) for now in range(0, 200 * WINDOW_MS, WINDOW_MS // 4)]
    assert max(ages) <= 2 * WINDOW_MS // 10_000


def test_delays_double_up_to_the_maximum_and_are_not_all_the_same() -> None:
    backoff = Backoff(Random(1), 0.1, 1.0)
    delays = [backoff.delay_s() for _ in range(6)]
    assert all(limit / 2 <= delay <= limit for delay, limit in zip(delays, [0.1, 0.2, 0.4, 0.8, 1.0, 1.0], strict=True))
    assert len(set(delays)) == 6
    backoff.reset()
    assert backoff.delay_s() <= 0.1
