"""Keys for what a partition has in the log only: which pieces of the head and bodies are made of it, and the commands that make
them. Pure.

All that has no key gets one, and all state that changed since keys were made last is written with it, so that what has keys is
the front of the partition as it was at one moment. The key "l" says where that front ends: appends of the log from there on are
replayed at boot, those before it are not.
"""

from __future__ import annotations

from penstock.blob import Buffer
from penstock.queue import keys
from penstock.queue.body import Body
from penstock.queue.head import HeadPlan
from penstock.queue.keys import HEAD, DataKey, Description
from penstock.queue.piece import Piece
from penstock.queue.sources import SourceState
from penstock.tablet import Command, Concat, DeleteRange, Write

# A piece of the head that is no longer is kept in the tablet's log: a lone small message costs no blob of its own.
INLINE_MAX = 4 << 10


def head_key(number: int, piece: Piece) -> bytes:
    """The key of a piece of the head."""
    return DataKey(number, piece.first_offset, piece.count, HEAD).pack()


def body_of(number: int, piece: Piece) -> Body:
    """A run of batches as the partition remembers it once it is a body."""
    marks_size = piece.marks.packed_size
    stamps = (piece.min_timestamp, piece.max_timestamp)
    return Body(number, piece.first_offset, piece.count, piece.size, marks_size, *stamps, piece.hidden)


def plan_commands(number: int, keyed: list[Piece], plan: HeadPlan) -> list[Command]:
    """What makes the bodies and the piece of a plan, where `keyed` are the pieces of the head that have keys."""
    replaced = keyed[len(keyed) - plan.replaced :]
    old = {id(piece): head_key(number, piece) for piece in replaced}
    commands: list[Command] = []
    for run in plan.bodies:
        commands += _body_commands(number, run, old)
    if not plan.bodies:
        commands += (DeleteRange(key, key + b"\0") for key in old.values())
    if plan.piece is not None:
        piece = plan.piece
        description = Description(piece.size, 0, piece.min_timestamp, piece.max_timestamp)
        commands.append(Write(head_key(number, piece), tuple(piece.buffers), description.pack(), INLINE_MAX))
    return commands


def state_commands(
    number: int, keyed_to: int, sources: dict[bytes, SourceState], changes: dict[bytes, bytes | None]
) -> list[Command]:
    """What writes the state that changed since keys were made last, and up to where there are keys now."""
    prefix = keys.prefix(b"s", number)
    commands: list[Command] = [Write(prefix + source, state.pack()) for source, state in sources.items()]
    for key, value in changes.items():
        commands.append(DeleteRange(key, key + b"\0") if value is None else Write(key, value))
    commands.append(Write(keys.prefix(b"l", number), keys.pack_offset(keyed_to)))
    return commands


def _body_commands(number: int, run: tuple[Piece, ...], old: dict[int, bytes]) -> list[Command]:
    """Make a body of pieces: old ones as they lie, new ones written, the marks behind them. All of a body is in blobs, so that it
    can be sent from files: old ones that the log has kept so far are written as well."""
    piece = Piece.joined(run)
    body = body_of(number, piece)
    commands: list[Command] = []
    sources: list[bytes] = []
    fresh: dict[bytes, list[Buffer]] = {}
    written: list[Buffer] | None = None
    for part in run:
        source = old.get(id(part))
        if source is not None and part.size > INLINE_MAX:
            sources.append(source)
            written = None
            continue
        if source is not None:
            commands.append(DeleteRange(source, source + b"\0"))
        if written is None:
            # Under a key of its own only until the body has it, within this very request.
            sources.append(body.key + b"+%d" % len(sources))
            written = fresh[sources[-1]] = []
        written += part.buffers
    commands += (Write(key, tuple(buffers), inline_max=0) for key, buffers in fresh.items())
    marks = body.key + b"+m"
    commands.append(Write(marks, piece.marks.pack()))
    commands.append(Concat((*sources, marks), body.key, body.description.pack()))
    return commands
