"""Conversations with a group of the newer protocol (KIP-848), in which the coordinator assigns partitions.

topic a 4                           topic a has 4 partitions from now on
join ann topics=a,b [pattern=x.*] [instance=i] [rebalance=60s]   the first heartbeat: epoch 0, subscription, nothing owned
heartbeat ann [owned=a-0,a-1] [topics=a] [epoch=3]   a later one; without owned= the member does not say what it owns
leave ann, pause ann                the last heartbeat: epoch -1, or -2 for a static member that will be back
together / end                      heartbeats between the two reach the group at the same time
commit ann [epoch=3]                ann wants to commit offsets
advance 45s                         time passes
fail-next-store                     what the next heartbeat changes cannot be made durable
restart                             the broker starts again from what is stored
show                                prints the group and its members

A client remembers the epoch it was told last. Below an answer stands what was stored before it was given.
"""

from __future__ import annotations

from typing import Any

from penstock.broker.consumers import TopicPartition
from penstock.broker.groups.consumer_group import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    PAUSE_EPOCH,
    ConsumerGroup,
    ConsumerGroupOptions,
    Heartbeat,
    HeartbeatResponse,
)
from penstock.broker.groups.consumer_records import GROUP, MEMBER, GroupRecord, Member, key_of, unpack_target
from penstock.broker.groups.subscriptions import Topics, TopicShape
from penstock.core.errors import PenstockError
from penstock.tablet import DeleteRange, Write
from tests.conversations.partition_names import names_of, partitions_of, topic_id
from tests.conversations.script import Block, Command, seconds_of, unknown

KINDS = {b"g": "group", b"m": "member", b"t": "target of"}


class ManualClock:
    """A clock that a conversation moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        """Seconds since the conversation began."""
        return self.now

    def wall(self) -> float:
        """The time of day; conversations have no need of a real one."""
        return self.now


class Conversation:
    """A group, its topics, its clients, its time and its storage."""

    def __init__(self) -> None:
        self._clock = ManualClock()
        self._options = ConsumerGroupOptions()
        self._group = ConsumerGroup("readers", self._options, self._clock)
        self._topics = Topics(0, {})
        self._epochs: dict[str, int] = {}
        self._instances: dict[str, str] = {}
        self._table: dict[bytes, bytes] = {}
        self._gathered: list[Heartbeat] | None = None
        self._store_fails = False
        self._lines: list[str] = []

    def answer(self, block: Block) -> list[str]:
        """Carry out commands; what comes back."""
        for command in block.commands:
            before = self._group.state
            try:
                self._carry_out(command)
            except PenstockError as error:
                self._lines.append(f"{command.subject}: error {error.code}")
            if self._group.state != before:
                self._lines.append(f"state {before} -> {self._group.state}")
        lines, self._lines = self._lines, []
        return lines

    def _carry_out(self, command: Command) -> None:
        match command.verb:
            case "topic":
                self._set_topic(command.subject, int(command.arguments[1]))
            case "join":
                self._join(command)
            case "heartbeat":
                self._beat(command, command.number("epoch", self._epochs.get(command.subject, JOIN_EPOCH)))
            case "leave":
                self._beat(command, LEAVE_EPOCH)
            case "pause":
                self._beat(command, PAUSE_EPOCH)
            case "together":
                self._gathered = []
            case "end":
                beats, self._gathered = self._gathered or [], None
                self._send(beats)
            case "commit":
                epoch = command.number("epoch", self._epochs.get(command.subject, -1))
                self._group.check_commit(command.subject, epoch)
                self._lines.append(f"{command.subject}: ok")
            case "advance":
                self._advance(seconds_of(command.subject))
            case "fail-next-store":
                self._store_fails = True
            case "restart":
                self._restart()
            case "show":
                self._show()
            case _:
                raise unknown(command)

    def _set_topic(self, name: str, partitions: int) -> None:
        shapes = {**self._topics.by_name, name: TopicShape(topic_id(name), partitions)}
        self._topics = Topics(self._topics.version + 1, shapes)

    def _join(self, command: Command) -> None:
        if "instance" in command.options:
            self._instances[command.subject] = command.options["instance"]
        timeout_ms = int(command.seconds("rebalance", 60.0) * 1000)
        self._beat(command, JOIN_EPOCH, rebalance_timeout_ms=timeout_ms, owned=frozenset[TopicPartition]())

    def _beat(self, command: Command, epoch: int, **fields: Any) -> None:
        if "owned" in command.options:
            fields["owned"] = partitions_of(command.words("owned"))
        if "topics" in command.options:
            fields["names"] = frozenset(command.words("topics"))
        fields["pattern"] = command.options.get("pattern")
        beat = Heartbeat(command.subject, epoch, instance_id=self._instances.get(command.subject), **fields)
        if self._gathered is not None:
            self._gathered.append(beat)
        else:
            self._send([beat])

    def _send(self, beats: list[Heartbeat]) -> None:
        answers = self._group.heartbeats(beats, self._topics)
        if not self._store():
            answers = [PenstockError("nothing is answered that is not stored")] * len(beats)
            self._lines += [f"{beat.member_id}: no answer; the changes are rolled back" for beat in beats]
            return
        for beat, answer in zip(beats, answers, strict=True):
            if isinstance(answer, PenstockError):
                self._lines.append(f"{beat.member_id}: error {answer.code}")
            else:
                self._take(answer)

    def _take(self, answer: HeartbeatResponse) -> None:
        self._epochs[answer.member_id] = answer.epoch
        line = f"{answer.member_id}: epoch {answer.epoch}"
        if answer.epoch >= 0:
            assigned = "as before" if answer.assigned is None else names_of(answer.assigned)
            line += f", assigned {assigned}, again in {answer.heartbeat_interval_ms} ms"
        self._lines.append(line)

    def _store(self) -> bool:
        """Make durable what has changed; whether that succeeded."""
        changes = self._group.take_changes()
        if self._store_fails:
            self._store_fails = False
            self._group.roll_back(changes)
            return False
        for command in changes.commands:
            if isinstance(command, Write):
                self._table[command.key] = command.head
            elif isinstance(command, DeleteRange):
                self._table = {key: head for key, head in self._table.items() if not command.begin <= key < command.end}
        stored = [" ".join((KINDS[kind], member_id)).strip() for kind, member_id in changes.undo]
        if stored:
            self._lines.append(f"store: {', '.join(sorted(stored))}")
        return True

    def _advance(self, seconds: float) -> None:
        until = self._clock.now + seconds
        while (due := self._group.next_expiry()) is not None and due <= until:
            self._clock.now = due
            before = set(self._group.members)
            self._group.expire()
            self._lines += [f"group: {name} removed at {due:g}s" for name in sorted(before - set(self._group.members))]
            self._store()
        self._clock.now = until

    def _restart(self) -> None:
        members: list[Member] = []
        targets: dict[str, frozenset[TopicPartition]] = {}
        record = GroupRecord.unpack(self._table[key_of("readers", GROUP)])
        prefix = key_of("readers")
        for key, raw in sorted(self._table.items()):
            kind, member_id = key[len(prefix) : len(prefix) + 1], key[len(prefix) + 1 :].decode()
            if kind == MEMBER:
                members.append(Member.unpack(member_id, raw))
            elif kind != GROUP:
                targets[member_id] = unpack_target(raw)
        self._group = ConsumerGroup.restore(
            "readers", self._options, self._clock, record=record, members=members, targets=targets
        )

    def _show(self) -> None:
        group = self._group
        record = group.record
        self._lines.append(f"{group.state}, epoch {record.epoch}, assignment epoch {record.assignment_epoch}")
        for member in group.members.values():
            revoking = f", revoking {names_of(member.revoking)}" if member.revoking else ""
            target = names_of(group.targets.get(member.id, frozenset()))
            progress = f"epoch {member.epoch} {member.state.name}"
            self._lines.append(f"  {member.id}: {progress}, assigned {names_of(member.assigned)}{revoking}, target {target}")


def play(blocks: list[Block]) -> list[list[str]]:
    """Returns what a new group answers to each block."""
    conversation = Conversation()
    return [conversation.answer(block) for block in blocks]
