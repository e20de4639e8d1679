"""`penstock.Client` and `AsyncClient` against a real node: the examples of their page, and what the page promises."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import AsyncClient, Client
from penstock.client import AdminRefusedError, BrokerUnreachableError, Message, MessageDraft, PenstockError, RequestRefusedError
from tests.documented import ROOT, blocks
from tests.e2e.running_node import RunningNode, running_node

PAGE = ROOT / "docs" / "python-client.md"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    """A node with every listener that the client uses."""
    folder = tmp_path_factory.mktemp("client")
    ports = ("--http-port", "0", "--stream-port", "0")
    with running_node(folder / "log", ["--data-dir", str(folder / "data"), *ports]) as running:
        yield running


@pytest.fixture
def client(node: RunningNode) -> Iterator[Client]:
    with Client(node.bootstrap) as opened:
        yield opened


def test_the_examples_of_the_page_run(node: RunningNode, capsys: pytest.CaptureFixture[str]) -> None:
    examples = [block for block in blocks(PAGE) if block.language == "python"]
    assert len(examples) > 5
    names: dict[str, object] = {}
    for example in examples:
        source = example.body.replace("127.0.0.1:9092", node.bootstrap)
        exec(compile(source, f"{PAGE.name}:{example.line}", "exec"), names)
    printed = capsys.readouterr().out
    assert "b'ada' 20" in printed
    assert "there is no topic 'misspelt'" in printed


def test_what_is_written_is_read_with_keys_headers_and_times(client: Client) -> None:
    client.topics.create("fields", partitions=2)
    written = client.produce("fields", "värde", key="k", headers={"h": "1", "none": None}, timestamp_ms=1_700_000_000_000)
    (message,) = client.consume("fields", partitions=[written.partition])
    assert message == Message(
        "fields", written.partition, written.offset, 1_700_000_000_000, b"k", "värde".encode(), (("h", b"1"), ("none", None))
    )
    assert (message.text, message.time.year) == ("värde", 2023)


def test_many_messages_are_written_once_each_and_in_order(client: Client) -> None:
    client.topics.create("many", partitions=3)
    assert client.produce_many("many", (MessageDraft(str(number % 7), str(number)) for number in range(12_000))) == 12_000
    by_key: dict[bytes | None, list[int]] = {}
    for message in client.consume("many"):
        by_key.setdefault(message.key, []).append(int(message.text))
    assert sorted(number for numbers in by_key.values() for number in numbers) == list(range(12_000))
    assert all(numbers == sorted(numbers) for numbers in by_key.values())


def test_a_message_whose_processing_failed_is_delivered_again(client: Client) -> None:
    client.topics.create("jobs")
    client.produce_many("jobs", ["one", "two", "three"])

    def work() -> None:
        with client.consume("jobs", group="workers") as messages:
            for message in messages:
                if message.text == "two":
                    raise ArithmeticError

    with pytest.raises(ArithmeticError):
        work()
    with client.consume("jobs", group="workers") as messages:
        assert [message.text for message in messages] == ["two", "three"]
    assert client.groups.describe("workers").lag_messages == 0


def test_a_block_left_in_good_order_commits_the_message_in_hand(client: Client) -> None:
    client.topics.create("steps")
    client.produce_many("steps", ["one", "two"])
    with client.consume("steps", group="walkers") as messages:
        assert next(messages).text == "one"
    assert [position.position for position in client.groups.describe("walkers").positions] == [1]


def test_two_members_of_a_group_share_its_partitions(node: RunningNode) -> None:
    async def scenario() -> None:
        async with AsyncClient(node.bootstrap) as client:
            await client.topics.create("shared", partitions=2)

            async def member(seen: set[int]) -> None:
                async with client.consume("shared", group="pair", follow=True) as messages:
                    async for message in messages:
                        seen.add(message.partition)

            first: set[int] = set()
            second: set[int] = set()
            members = [asyncio.create_task(member(first)), asyncio.create_task(member(second))]
            async with asyncio.timeout(60):
                while not (first and second):
                    for partition in (0, 1):
                        await client.produce("shared", "x", partition=partition)
                    await asyncio.sleep(0.05)
            for task in members:
                task.cancel()
            await asyncio.gather(*members, return_exceptions=True)
            assert (await client.groups.describe("pair")).members == []

    asyncio.run(scenario())


def test_tasks_share_an_asynchronous_client(node: RunningNode) -> None:
    async def scenario() -> None:
        async with AsyncClient(node.bootstrap) as client:
            written = await asyncio.gather(*(client.produce("tasks", str(number)) for number in range(40)))
            assert len({(message.partition, message.offset) for message in written}) == 40
            assert len([message async for message in client.consume("tasks")]) == 40

    asyncio.run(scenario())


def test_errors_say_what_to_do(client: Client) -> None:
    with pytest.raises(RequestRefusedError, match="there is no such topic"):
        next(client.consume("missing"))
    with pytest.raises(PenstockError, match="has partitions 0"):
        client.produce("errors", "x", partition=999)
    with pytest.raises(PenstockError, match="no start; give 'earliest'"):
        client.consume("errors", start="yesterday")  # type: ignore[arg-type]  # as a script may
    client.topics.create("errors", exist_ok=True)
    with pytest.raises(AdminRefusedError) as refused:
        client.topics.create("errors")
    assert (refused.value.reason, refused.value.status) == ("TOPIC_EXISTS", 409)


def test_a_node_that_is_not_there_is_told_at_once() -> None:
    with Client("127.0.0.1:1") as client, pytest.raises(BrokerUnreachableError, match="is a node running there"):
        client.produce("anything", "x")


def test_files_of_streams_come_back_as_they_went(client: Client, tmp_path: Path) -> None:
    original = tmp_path / "original"
    original.write_bytes(bytes(range(256)) * 8192)
    sequence = client.streams.upload("files", original)
    (message,) = client.streams.read("files")
    assert (message.sequence, message.data, message.size) == (sequence, None, 2 << 20)
    assert client.streams.download(sequence, tmp_path / "copy") == 2 << 20
    assert (tmp_path / "copy").read_bytes() == original.read_bytes()
