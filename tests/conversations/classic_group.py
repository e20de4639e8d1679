"""Conversations with a group of the classic protocol.

join ann [instance=i] [protocols=range,sticky] [session=10s] [rebalance=60s] [id-first=yes] [version=old]   ann joins
sync ann [ann=0,1 bob=2]            ann asks for its assignment; a leader brings everyone's
heartbeat ann [generation=1]        ann is alive
commit ann [generation=1]           ann wants to commit offsets
leave ann                           ann leaves
restart-client ann                  ann forgets its member id, as a process that starts again
advance 10s                         time passes
stored, not-stored                  the oldest write that the group waits for succeeds, or fails
restart                             the broker starts again from what is stored
options [initial-delay=3s] [members-max=2]   as the first command: the settings of the group
show                                prints the group

A member id is the name of its client and a number. A client remembers the member id and the generation it was told last, as real
ones do.
"""

from __future__ import annotations

from itertools import count
from typing import Any, NamedTuple

from penstock.broker.groups.classic import ClassicGroup
from penstock.broker.groups.members import Effect, JoinRequest, JoinResponse, MemberIdRequiredError, OfferedProtocol, Reply
from penstock.broker.groups.store import pack_group, unpack_group
from penstock.core.errors import PenstockError
from tests.conversations.script import Block, Command, seconds_of, unknown


class Ticket(NamedTuple):
    """A request that waits for its reply: whose it is."""

    client: str
    request: str


class Client:
    """What a client remembers."""

    def __init__(self) -> None:
        self.member_id = ""
        self.generation = -1
        self.instance_id: str | None = None


class Conversation:
    """A group, its clients, its time and its storage."""

    def __init__(self) -> None:
        self._options: dict[str, Any] = {}
        self._group = ClassicGroup("readers")
        self._now = 0.0
        self._clients: dict[str, Client] = {}
        self._tickets: dict[int, Ticket] = {}
        self._numbers = count(1)
        self._ids: dict[str, int] = {}
        self._stores: list[tuple[int, bytes]] = []
        self._stored = pack_group(self._group.record(0))
        self._lines: list[str] = []

    def answer(self, block: Block) -> list[str]:
        """Carry out commands; what comes back."""
        for command in block.commands:
            before = self._state()
            try:
                self._carry_out(command)
            except PenstockError as error:
                self._lines.append(f"{command.subject}: error {error.code}")
            if self._state() != before:
                self._lines.append(f"state {before} -> {self._state()}")
        lines, self._lines = self._lines, []
        return lines

    def _carry_out(self, command: Command) -> None:
        match command.verb:
            case "options":
                self._options = {"initial_delay_s": command.seconds("initial-delay", 0.0)}
                if "members-max" in command.options:
                    self._options["members_max"] = command.number("members-max", 0)
                self._group = ClassicGroup("readers", **self._options)
            case "join":
                self._join(command)
            case "sync":
                self._sync(command)
            case "heartbeat":
                client = self._client(command.subject)
                generation = command.number("generation", client.generation)
                self._group.heartbeat(client.member_id, generation, self._now, client.instance_id)
                self._lines.append(f"{command.subject}: ok")
            case "commit":
                client = self._client(command.subject)
                generation = command.number("generation", client.generation)
                self._group.check_commit(client.member_id, generation, self._now, client.instance_id)
                self._lines.append(f"{command.subject}: ok")
            case "leave":
                client = self._client(command.subject)
                self._apply(self._group.leave(client.member_id, self._now, client.instance_id))
                self._lines.append(f"{command.subject}: ok")
            case "restart-client":
                self._client(command.subject).member_id = ""
            case "advance":
                self._advance(seconds_of(command.subject))
            case "stored" | "not-stored":
                self._finish_store(succeeds=command.verb == "stored")
            case "restart":
                self._restart()
            case "show":
                self._show()
            case _:
                raise unknown(command)

    def _state(self) -> str:
        return self._group.state.value

    def _client(self, name: str) -> Client:
        return self._clients.setdefault(name, Client())

    def _join(self, command: Command) -> None:
        name = command.subject
        client = self._client(name)
        client.instance_id = command.options.get("instance", client.instance_id)
        protocols = command.words("protocols") or ["range"]
        request = JoinRequest(
            client.member_id,
            "consumer",
            tuple(OfferedProtocol(protocol, b"") for protocol in protocols),
            session_timeout_ms=int(command.seconds("session", 10.0) * 1000),
            rebalance_timeout_ms=int(command.seconds("rebalance", 60.0) * 1000),
            instance_id=client.instance_id,
            takes_id_first=command.options.get("id-first") == "yes",
        )
        new_id = f"{name}-{self._ids.get(name, 0) + 1}"
        if not client.member_id:
            self._ids[name] = self._ids.get(name, 0) + 1
        ticket = self._ticket(name, "join")
        self._apply(self._group.join(ticket, request, new_id, self._now))
        self._note_waiting(ticket)

    def _sync(self, command: Command) -> None:
        client = self._client(command.subject)
        shares = {self._client(name).member_id: share.encode() for name, share in command.options.items()}
        ticket = self._ticket(command.subject, "sync")
        instance_id = client.instance_id
        effects = self._group.sync(ticket, client.member_id, client.generation, shares, self._now, instance_id=instance_id)
        self._apply(effects)
        self._note_waiting(ticket)

    def _ticket(self, name: str, request: str) -> int:
        number = next(self._numbers)
        self._tickets[number] = Ticket(name, request)
        return number

    def _note_waiting(self, ticket: int) -> None:
        if ticket in self._tickets:
            self._lines.append(f"{self._tickets[ticket].client}: {self._tickets[ticket].request} waits")

    def _apply(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Reply):
                self._take_reply(self._tickets.pop(effect.ticket), effect)
            else:
                self._stores.append((effect.serial, pack_group(self._group.record(0))))
                self._lines.append("group: store")

    def _take_reply(self, ticket: Ticket, reply: Reply) -> None:
        client = self._client(ticket.client)
        answer = reply.response
        if isinstance(answer, JoinResponse):
            client.member_id, client.generation = answer.member_id, answer.generation
            role = f"leads {', '.join(member.member_id for member in answer.members)}" if answer.members else "follows"
            skip = ", need not assign" if answer.skip_assignment else ""
            place = f"generation {answer.generation}, {answer.protocol_name}, {role}{skip}"
            self._lines.append(f"{ticket.client}: joined as {answer.member_id}, {place}")
        elif isinstance(answer, PenstockError):
            detail = ""
            if isinstance(answer, MemberIdRequiredError):
                client.member_id = answer.member_id
                detail = f", member id {answer.member_id}"
            self._lines.append(f"{ticket.client}: {ticket.request} error {answer.code}{detail}")
        else:
            self._lines.append(f"{ticket.client}: assigned {answer.assignment.decode() or 'nothing'}")

    def _advance(self, seconds: float) -> None:
        until = self._now + seconds
        while (due := self._group.next_due()) is not None and due <= until:
            self._now = max(self._now, due)
            before = set(self._group.members)
            effects = self._group.tick(self._now)
            for member_id in sorted(before - set(self._group.members)):
                self._lines.append(f"group: {member_id} removed at {self._now:g}s")
            self._apply(effects)
        self._now = until

    def _finish_store(self, *, succeeds: bool) -> None:
        if not self._stores:
            raise ValueError("the group waits for no write")
        serial, packed = self._stores.pop(0)
        if succeeds:
            self._stored = packed
        error = None if succeeds else PenstockError("the disk is full")
        self._apply(self._group.stored(serial, error, self._now))

    def _restart(self) -> None:
        self._stores.clear()
        self._tickets.clear()
        self._group = ClassicGroup.restored("readers", unpack_group(self._stored), self._now, **self._options)

    def _show(self) -> None:
        group = self._group
        self._lines.append(f"{self._state()}, generation {group.generation}, leader {group.leader_id or 'none'}")
        for member in group.members.values():
            instance = "" if member.instance_id is None else f" (instance {member.instance_id})"
            self._lines.append(f"  {member.id}{instance}: {member.assignment.decode() or 'nothing'}")
        if self._tickets:
            waiting = ", ".join(f"{ticket.client} ({ticket.request})" for ticket in self._tickets.values())
            self._lines.append(f"  waiting for a reply: {waiting}")


def play(blocks: list[Block]) -> list[list[str]]:
    """Returns what a new group answers to each block."""
    conversation = Conversation()
    return [conversation.answer(block) for block in blocks]
