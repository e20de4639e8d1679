"""Reading straight from the broker's files: the same rows as by fetching, and by fetching whenever that does not work."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from penstock.kafka.client import BlockingClient, ClientOptions, parse_addresses
from penstock.kafka.protocol import errors, private_keys
from penstock.kafka.protocol.private_reads import FindPiecesRequest, FindPiecesResponse, FoundPiece
from penstock.spark.direct_reading import OpenFiles
from penstock.spark.fetching import FetchSource
from tests.e2e.kafka.running_gateway import RunningGateway
from tests.spark.reads import batch_reader, produce, read, rows_of, values

# Enough for several bodies of a partition, which are in files only; what was written last is still in memory.
MANY: list[bytes | None] = [b"%06d" % number + bytes(1000) for number in range(24_000)]
TAIL: list[bytes | None] = [b"in memory"]
TOPIC = "large-enough"


@pytest.fixture(scope="module", autouse=True)
def _filled(gateway: RunningGateway) -> None:
    gateway.create_topic(TOPIC)
    produce(gateway.bootstrap, TOPIC, MANY, queue_buffering_max_messages=100_000)
    produce(gateway.bootstrap, TOPIC, TAIL)


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The offsets for which a task sent a fetch."""
    offsets: list[int] = []
    ask = FetchSource._fetch_once

    def noting(self: FetchSource, position: int, buffer: Any) -> Any:
        offsets.append(position)
        return ask(self, position, buffer)

    monkeypatch.setattr(FetchSource, "_fetch_once", noting)
    return offsets


@pytest.fixture
def cluster(gateway: RunningGateway) -> Iterator[BlockingClient]:
    """A client of the broker."""
    made = BlockingClient(ClientOptions(parse_addresses(gateway.bootstrap, "bootstrap")))
    yield made
    made.close()


def test_what_is_in_files_is_not_fetched(gateway: RunningGateway, fetched: list[int]) -> None:
    assert values(read(gateway.bootstrap, subscribe=TOPIC, kafka_fetch_max_bytes=4 << 20)) == [*MANY, *TAIL]
    # Only the end of the partition, which is not in a body yet.
    assert fetched
    assert min(fetched) > len(MANY) // 2
    fetched.clear()
    assert values(read(gateway.bootstrap, subscribe=TOPIC, direct=False)) == [*MANY, *TAIL]
    assert min(fetched) == 0


def test_a_range_in_the_middle_is_read_from_files(gateway: RunningGateway, fetched: list[int]) -> None:
    bounds: dict[str, Any] = {"startingOffsets": f'{{"{TOPIC}":{{"0":777}}}}', "endingOffsets": f'{{"{TOPIC}":{{"0":888}}}}'}
    assert values(read(gateway.bootstrap, subscribe=TOPIC, **bounds)) == MANY[777:888]
    assert fetched == []


def test_files_that_are_not_to_be_had_are_fetched(
    gateway: RunningGateway, fetched: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(_: OpenFiles, pieces: list[FoundPiece], view: memoryview) -> None:
        raise FileNotFoundError(2, f"{pieces[0].path} is not on this machine")

    monkeypatch.setattr(OpenFiles, "read", absent)
    assert values(read(gateway.bootstrap, subscribe=TOPIC)) == [*MANY, *TAIL]
    assert fetched[0] == 0


def test_another_file_of_the_same_name_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "chunk"
    path.write_bytes(b"0123456789")
    meant = FoundPiece(path=str(path), inode=path.stat().st_ino, position=2, length=3)
    room = bytearray(6)
    files = OpenFiles()
    files.read([meant, FoundPiece(path=str(path), inode=path.stat().st_ino, position=7, length=3)], memoryview(room))
    assert room == b"234789"
    with pytest.raises(FileNotFoundError, match="another file"):
        files.read([FoundPiece(path=str(path), inode=1, position=2, length=3)], memoryview(room))
    with pytest.raises(OSError, match="shorter than the broker says"):
        files.read([FoundPiece(path=str(path), inode=path.stat().st_ino, position=8, length=3)], memoryview(room))
    with pytest.raises(FileNotFoundError):
        files.read([FoundPiece(path=str(tmp_path / "absent"), inode=1, position=0, length=1)], memoryview(room))
    path.unlink()
    files.read([meant], memoryview(room))  # an open file outlives its name
    assert room[:3] == b"234"
    files.close()


def test_transactions_are_honoured_in_files(gateway: RunningGateway, fetched: list[int]) -> None:
    gateway.create_topic("transactions-in-files")
    producer = confluent_kafka.Producer({"bootstrap.servers": gateway.bootstrap, "transactional.id": "direct", "linger.ms": 20})
    producer.init_transactions(20)
    for number, ends in enumerate((producer.commit_transaction, producer.abort_transaction)):
        producer.begin_transaction()
        for row in range(10_000):
            producer.produce("transactions-in-files", b"%d %05d" % (number, row) + bytes(1000), partition=0)
            producer.poll(0)
        assert producer.flush(20) == 0
        ends(20)
    found = read(gateway.bootstrap, subscribe="transactions-in-files", kafka_isolation_level="read_committed")
    assert [value[:7] for value in values(found)] == [b"0 %05d" % row for row in range(10_000)]
    assert 0 not in fetched


def test_records_deleted_after_planning_are_data_loss_or_still_read(gateway: RunningGateway) -> None:
    made = gateway.create_topic("deleted-files")
    produce(gateway.bootstrap, "deleted-files", MANY[:12_000], queue_buffering_max_messages=100_000)
    reader = batch_reader(gateway.bootstrap, subscribe="deleted-files", failOnDataLoss=False)
    planned = reader.partitions()
    gateway.run(gateway.broker.partition(made, 0).trim(9000))
    assert values(rows_of(reader, planned)) == MANY[9000:12_000]


def test_pieces_are_told_of_only_where_there_are_some(gateway: RunningGateway, cluster: BlockingClient) -> None:
    topic = cluster.topics([TOPIC])[TOPIC]
    connection = cluster.connect(topic.leaders[0])

    def find(**asked: Any) -> FindPiecesResponse:
        request = FindPiecesRequest(**{"topic_id": topic.id, "bytes_max": 1 << 20, **asked})
        return connection.call(private_keys.FIND_PIECES, request, FindPiecesResponse)

    found = find()
    assert sum(piece.length for piece in found.pieces) <= 1 << 20
    assert 0 < found.next_offset < len(MANY)
    assert all(Path(piece.path).stat().st_ino == piece.inode for piece in found.pieces)
    for asked in ({"offset": len(MANY) + 1}, {"offset": len(MANY)}, {"offset": -1}):
        assert find(**asked) == FindPiecesResponse()
    assert find(partition=5).error_code == errors.UNKNOWN_TOPIC_OR_PARTITION
    assert find(topic_id=bytes(15) + b"\1").error_code == errors.UNKNOWN_TOPIC_ID
