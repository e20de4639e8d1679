"""The comparison with peers: which rows come first, what counts as reached, how replies are told apart, what the page becomes."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.kafka_frames import error_code, fetch_error_at, produce_error_at
from bench.kafka_peer.pair import WarmUp
from bench.kafka_peer.raw_load import is_steady
from bench.kafka_peer.report import BEGIN, END, PeerReport, Report
from bench.kafka_peer.rows import Compared, Figure, Goal, losing_first
from bench.kafka_peer.wires import take_frames, take_messages
from penstock.kafka.protocol import encode_response, keys
from penstock.kafka.protocol.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from penstock.kafka.protocol.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse


def _row(name: str, ours: float, peer: float, goal: Goal | None = None, *, higher_is_better: bool = True) -> Compared:
    figures = Figure.of([ours]), Figure.of([peer])
    return Compared.of(name, "/s", *figures, higher_is_better=higher_is_better, goal=goal)


def test_losing_rows_come_first_the_worst_on_top() -> None:
    rows = [
        _row("ahead", 3, 1),
        _row("behind without a goal", 1, 2),
        _row("little below", 3, 2, Goal(2.0)),
        _row("far below", 1, 4, Goal(1.0)),
        _row("level", 1, 1, Goal(1.0)),
    ]
    ordered = [row.name for row in losing_first(rows)]
    assert ordered == ["far below", "little below", "behind without a goal", "ahead", "level"]


@pytest.mark.parametrize(("ours", "is_met"), [(28.0, True), (28.1, False)])
def test_a_limit_of_ours_does_not_look_at_the_peer(ours: float, is_met: bool) -> None:
    limit = Goal(28, is_of_ours=True, at_least=False)
    assert _row("CPU", ours, 1, limit, higher_is_better=False).is_met is is_met


def test_rates_are_steady_within_a_share_of_the_largest() -> None:
    assert is_steady([96, 100, 98], 0.05)
    assert not is_steady([94, 100, 98], 0.05)


def test_the_error_code_of_a_produce_is_found() -> None:
    partition = PartitionProduceResponse(index=3, error_code=7)
    response = ProduceResponse(responses=[TopicProduceResponse(name="some", partition_responses=[partition])])
    reply = b"".join(encode_response(keys.PRODUCE, 9, 0, response)[0])
    assert error_code(reply, produce_error_at("some")) == 7
    with pytest.raises(RuntimeError, match="error 7"):
        take_frames(bytearray(reply), produce_error_at("some"))


def test_the_error_code_of_a_fetch_is_found() -> None:
    topic = FetchableTopicResponse(topic="some", partitions=[PartitionData(partition_index=3, error_code=1, records=b"")])
    reply = b"".join(encode_response(keys.FETCH, 11, 0, FetchResponse(responses=[topic]))[0])
    assert error_code(reply, fetch_error_at("some")) == 1


def test_frames_in_pieces_are_taken_when_whole() -> None:
    received = bytearray(b"\0\0\0\x04abcd\0\0\0\x04ab")
    received[4:8] = b"\0\0\0\0"
    assert take_frames(received, 4) == 1
    assert received == b"\0\0\0\x04ab"


def test_messages_of_nats_are_told_from_its_other_lines() -> None:
    received = bytearray(b"INFO {}\r\nMSG in 1 2\r\nhi\r\nPING\r\nMSG in 1 reply 4\r\nlo")
    assert take_messages(received) == [b"hi"]
    received += b"ng\r\n"
    assert take_messages(received) == [b"long"]
    with pytest.raises(RuntimeError, match="Slow Consumer"):
        take_messages(bytearray(b"-ERR 'Slow Consumer'\r\n"))


def test_a_report_replaces_what_is_between_the_marks_of_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.kafka_peer.report.RESULTS", tmp_path)
    monkeypatch.setattr("bench.kafka_peer.report.FILE", tmp_path / "kept.json")
    report = Report("Penstock 1", is_quick=True, rounds=3, load_average=0.1, missing={"tansu": "not built"})
    rows = [_row("won", 2, 1, Goal(1.0)), _row("lost", 1, 2, Goal(1.0))]
    report.peers.append(PeerReport("kafka", "Kafka 4", rows, [WarmUp("kafka", "fsync", [1.0, 2.0], is_steady=False)]))
    report.keep()
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n", encoding="utf-8")
    Report.last().write(page)
    text = page.read_text(encoding="utf-8")
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    assert text.index("| lost | 1 /s | 2 /s | **0.50** | ≥ 1 missed |") < text.index("| won | 2 /s | 1 /s | 2.00 | ≥ 1 |  |")
    assert "- **Tansu**: not built" in text
    assert "- kafka, fsync: not steady after 6 s" in text
