"""What groups, transactions and partitions answer, conversation by conversation: the text files of `testdata`.

REWRITE=1 writes the answers into the files instead of comparing them; read the difference before you commit it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conversations import classic_group, consumer_group, partition, transaction
from tests.conversations.script import Block, Script

FOLDER = Path(__file__).parent / "testdata"
PLAYERS: dict[str, Callable[[list[Block]], list[list[str]]]] = {
    "classic_group": classic_group.play,
    "consumer_group": consumer_group.play,
    "transaction": transaction.play,
    "partition": partition.play,
}
FILES = sorted(FOLDER.glob("*/*.txt"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_the_conversation_is_as_written(path: Path) -> None:
    script = Script(path)
    text = script.rendered(PLAYERS[path.parent.name](script.blocks))
    if os.environ.get("REWRITE"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8"), "REWRITE=1 takes the new answers over"


def test_every_state_machine_has_conversations() -> None:
    assert {path.parent.name for path in FILES} == set(PLAYERS)
