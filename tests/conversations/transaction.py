"""Conversations with a transactional id.

init [as=7/0] [timeout=60s]         a producer takes the id; as= says who it was, if it goes on after an error
add [partitions=a-0,a-1] [groups=readers] [as=7/0]   these become part of the transaction
write a-0 [as=7/0]                  may the producer write there?
offsets readers [as=7/0]            may the producer set offsets of a group?
end commit|abort [version=2] [as=7/0]   the producer asks for the end, in version 1 or 2 of the protocol
completed                           all markers are written: the coordinator says so
fence                               the coordinator aborts what is running, since another producer came
advance 60s                         time passes; what takes longer than its timeout is aborted
epochs-used-up                      the id is as after 32,766 transactions of version 2
restart                             the coordinator starts again from what is stored
show                                prints the whole record

Every step that changes the state is stored before it is answered. A producer remembers its id and epoch; as=ID/EPOCH speaks as
another.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import count

from penstock.broker.transactions.store import pack, unpack
from penstock.broker.transactions.transaction import EPOCH_MAX, NO_PRODUCER, V1, Producer, State, Transaction
from penstock.core.errors import PenstockError
from tests.conversations.partition_names import name_of, names_of, partition_of, partitions_of
from tests.conversations.script import Block, Command, seconds_of, unknown

ID = "transfers"


class Conversation:
    """A transactional id, its producer, its time and its storage."""

    def __init__(self) -> None:
        self._producer_ids = count(7)
        self._transaction = Transaction(ID, next(self._producer_ids))
        self._stored = pack(self._transaction)
        self._producer = Producer(NO_PRODUCER, -1)
        self._now_ms = 0
        self._lines: list[str] = []

    def answer(self, block: Block) -> list[str]:
        """Carry out commands; what comes back."""
        for command in block.commands:
            before = self._transaction
            try:
                self._carry_out(command)
            except PenstockError as error:
                self._lines.append(f"error {error.code}")
            if self._transaction is not before:
                self._stored = pack(self._transaction)
                self._lines.append(f"state {self._transition(before.state)}, epoch {self._transaction.epoch}")
        lines, self._lines = self._lines, []
        return lines

    def _transition(self, before: State) -> str:
        after = self._transaction.state
        return after.value if after is before else f"{before.value} -> {after.value}"

    def _carry_out(self, command: Command) -> None:
        match command.verb:
            case "init":
                self._initialise(command)
            case "add":
                partitions = partitions_of(command.words("partitions"))
                groups = frozenset(command.words("groups"))
                before = self._transaction
                self._transaction = before.added(self._speaker(command), self._now_ms, queues=partitions, groups=groups)
                self._lines.append("ok" if self._transaction is not before else "ok, they were part of it before")
            case "write":
                self._transaction.check_writes(self._speaker(command), partition_of(command.subject))
                self._lines.append("ok")
            case "offsets":
                self._transaction.check_group(self._speaker(command), command.subject)
                self._lines.append("ok")
            case "end":
                self._end(command)
            case "completed":
                self._complete()
            case "fence":
                self._transaction = self._transaction.fenced(self._now_ms)
            case "advance":
                self._advance(seconds_of(command.subject))
            case "epochs-used-up":
                self._transaction = replace(self._transaction, epoch=EPOCH_MAX - 1)
                self._producer = self._transaction.owner
            case "restart":
                self._transaction = unpack(ID, self._stored)
            case "show":
                self._show()
            case _:
                raise unknown(command)

    def _speaker(self, command: Command) -> Producer:
        if "as" not in command.options:
            return self._producer
        producer_id, _, epoch = command.options["as"].partition("/")
        return Producer(int(producer_id), int(epoch))

    def _initialise(self, command: Command) -> None:
        expected = self._speaker(command) if "as" in command.options else None
        new_id = next(self._producer_ids) if self._transaction.needs_producer(expected) else NO_PRODUCER
        timeout_ms = int(command.seconds("timeout", 60.0) * 1000)
        self._transaction = self._transaction.initialised(timeout_ms, self._now_ms, expected, new_id)
        self._become(self._transaction.owner)

    def _end(self, command: Command) -> None:
        version = command.number("version", V1)
        new_id = next(self._producer_ids) if self._transaction.needs_producer_after(version) else NO_PRODUCER
        before = self._transaction
        self._transaction = before.ended(
            self._speaker(command), self._now_ms, commit=command.subject == "commit", version=version, new_producer_id=new_id
        )
        if self._transaction is before:
            self._lines.append("ok, it was done before")
        self._become(self._transaction.owner)

    def _become(self, producer: Producer) -> None:
        self._producer = producer
        self._lines.append(f"you are producer {producer.id} in epoch {producer.epoch}")

    def _complete(self) -> None:
        transaction = self._transaction
        kind = "commit" if transaction.is_commit else "abort"
        for partition in sorted(transaction.queues):
            self._lines.append(
                f"{kind} marker in {name_of(partition)}, producer {transaction.producer_id} epoch {transaction.epoch}"
            )
        for group in sorted(transaction.groups):
            self._lines.append(f"offsets of {group} are {'set' if transaction.is_commit else 'dropped'}")
        self._transaction = transaction.completed(self._now_ms)

    def _advance(self, seconds: float) -> None:
        self._now_ms += int(seconds * 1000)
        if self._transaction.state is State.ONGOING and self._now_ms > self._transaction.deadline_ms:
            self._lines.append(f"aborted: it takes more than {self._transaction.timeout_ms} ms")
            self._transaction = self._transaction.fenced(self._now_ms)

    def _show(self) -> None:
        transaction = self._transaction
        self._lines.append(f"{transaction.state.value}, producer {transaction.producer_id} epoch {transaction.epoch}")
        self._lines.append(
            f"  partitions {names_of(transaction.queues)}, groups {' '.join(sorted(transaction.groups)) or 'none'}"
        )


def play(blocks: list[Block]) -> list[list[str]]:
    """Returns what a new transactional id answers to each block."""
    conversation = Conversation()
    return [conversation.answer(block) for block in blocks]
