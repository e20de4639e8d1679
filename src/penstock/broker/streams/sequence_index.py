"""Maps sequences to messages: runs of sequences that are runs of offsets of one subject. Pure.

A run is stored under "i" | its first sequence 8, as: version 1 | subject number 4 | first offset 8 | messages 4
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from penstock.core.format_version import check_version

VERSION: Final = 1
RUN_PREFIX: Final = b"i"
RUN_MESSAGES_MAX: Final = 1 << 20
REBUILD_MIN: Final = 1000

_RUN = Struct(">BIqI")


class Run(NamedTuple):
    """Messages of a subject, one after another, whose sequences follow each other as their offsets do."""

    sequence: int
    subject: int
    offset: int
    length: int

    @property
    def end_sequence(self) -> int:
        """The sequence after the last one."""
        return self.sequence + self.length

    @property
    def end_offset(self) -> int:
        """The offset after the last one."""
        return self.offset + self.length

    @property
    def key(self) -> bytes:
        """Where it is stored."""
        return run_key(self.sequence)

    def pack(self) -> bytes:
        """The stored form."""
        return _RUN.pack(VERSION, self.subject, self.offset, self.length)

    @classmethod
    def unpack(cls, key: bytes, raw: bytes) -> Run:
        """The run that is stored under a key."""
        check_version(raw[0] if raw else 0, VERSION, "a run of sequences")
        return cls(int.from_bytes(key[1:], "big"), *_RUN.unpack(raw)[1:])


def run_key(sequence: int) -> bytes:
    """The key of a run that begins with a sequence."""
    return RUN_PREFIX + sequence.to_bytes(8, "big")


class SubjectRuns:
    """The runs of one subject, in order of both sequences and offsets."""

    def __init__(self) -> None:
        self._runs: list[Run] = []
        self._sequences: list[int] = []
        self._gone = 0  # runs at the front that are forgotten
        self.end_offset = 0  # up to where messages have sequences, or were deleted before they had one

    @property
    def last_sequence(self) -> int:
        """The last assigned sequence; 0 if there is none."""
        return self._runs[-1].end_sequence - 1 if len(self._runs) > self._gone else 0

    @property
    def first_run(self) -> Run | None:
        """The oldest run that is not forgotten."""
        return self._runs[self._gone] if len(self._runs) > self._gone else None

    def add(self, run: Run) -> None:
        """A run that follows all others, or the last one grown longer."""
        if len(self._runs) > self._gone and self._sequences[-1] == run.sequence:
            self._runs[-1] = run
        else:
            self._runs.append(run)
            self._sequences.append(run.sequence)
        self.end_offset = run.end_offset

    def skip_to(self, offset: int) -> None:
        """Messages before an offset are deleted: those without a sequence get none."""
        self.end_offset = max(self.end_offset, offset)

    def next_run(self, sequence: int) -> Run | None:
        """The first run with sequences from this one on, cut to begin with it; None if there is none."""
        at = max(bisect_right(self._sequences, sequence) - 1, self._gone)
        return _first_from(self._runs, at, sequence)

    def all_runs(self) -> list[Run]:
        """Every run that is not forgotten."""
        return self._runs[self._gone :]

    def sequence_of(self, offset: int) -> int | None:
        """The sequence of the message at an offset; None if it has none."""
        at = bisect_right(self._runs, offset, lo=self._gone, key=lambda run: run.offset) - 1
        if at < self._gone or offset >= self._runs[at].end_offset:
            return None
        return self._runs[at].sequence + offset - self._runs[at].offset

    def last_sequence_before(self, offset: int) -> int:
        """The sequence of the last message before an offset that has one; 0 if there is none."""
        at = bisect_right(self._runs, offset - 1, lo=self._gone, key=lambda run: run.offset) - 1
        if at < self._gone:
            return 0
        run = self._runs[at]
        return run.sequence + min(offset, run.end_offset) - run.offset - 1

    def offset_after(self, sequence: int) -> int:
        """The offset of the first message with a higher sequence."""
        run = self.next_run(sequence + 1)
        return self.end_offset if run is None else run.offset

    def forgettable(self, start_offset: int) -> list[Run]:
        """Runs that lie wholly before an offset. The last one is kept: it says where the subject stands."""
        runs: list[Run] = []
        for at in range(self._gone, len(self._runs) - 1):
            if self._runs[at].end_offset > start_offset:
                break
            runs.append(self._runs[at])
        return runs

    def forget(self, count: int) -> None:
        """Forget so many runs at the front."""
        self._gone += count
        if self._gone * 2 > len(self._runs):
            del self._runs[: self._gone]
            del self._sequences[: self._gone]
            self._gone = 0


class SequenceIndex:
    """All runs, by sequence and by subject. Every lookup takes the logarithm of their number."""

    def __init__(self) -> None:
        self.next_sequence = 1
        self._runs: list[Run] = []
        self._sequences: list[int] = []
        self._dead = 0
        self._subjects: dict[int, SubjectRuns] = {}

    def subject(self, number: int) -> SubjectRuns:
        """The runs of a subject."""
        runs = self._subjects.get(number)
        if runs is None:
            runs = self._subjects[number] = SubjectRuns()
        return runs

    def grown(self, subject: int, offset: int, count: int, next_sequence: int, last: Run | None) -> Run:
        """The run that gives the next sequences to some messages: a new one, or `last` made longer if they follow on it."""
        if (
            last is not None
            and last.subject == subject
            and last.end_sequence == next_sequence
            and last.end_offset == offset
            and last.length + count <= RUN_MESSAGES_MAX
        ):
            return last._replace(length=last.length + count)
        return Run(next_sequence, subject, offset, count)

    @property
    def last_run(self) -> Run | None:
        """The run that was added last."""
        return self._runs[-1] if self._runs else None

    def add(self, run: Run) -> None:
        """A run that follows all others, or the last one grown longer."""
        if self._sequences and self._sequences[-1] == run.sequence:
            self._runs[-1] = run
        else:
            self._runs.append(run)
            self._sequences.append(run.sequence)
        self.subject(run.subject).add(run)
        self.next_sequence = max(self.next_sequence, run.end_sequence)

    def find(self, sequence: int) -> Run | None:
        """The run that a sequence is in."""
        at = bisect_right(self._sequences, sequence) - 1
        if at < 0 or sequence >= self._runs[at].end_sequence:
            return None
        return self._runs[at]

    def next_run(self, sequence: int) -> Run | None:
        """The first run of any subject with sequences from this one on, cut to begin with it; None if there is none."""
        return _first_from(self._runs, max(bisect_right(self._sequences, sequence) - 1, 0), sequence)

    def forget(self, subject: int, count: int) -> None:
        """Forget so many of the oldest runs of a subject."""
        self.subject(subject).forget(count)
        self._note_dead(count)

    def forget_subject(self, subject: int) -> list[Run]:
        """Forget a subject; its runs, which are to be deleted."""
        gone = self.subject(subject).all_runs()
        self._subjects.pop(subject, None)
        self._note_dead(len(gone))
        return gone

    def _note_dead(self, count: int) -> None:
        self._dead += count
        if self._dead < REBUILD_MIN or self._dead * 2 < len(self._runs):
            return
        alive: list[Run] = []
        for run in self._runs:
            first = self._subjects[run.subject].first_run if run.subject in self._subjects else None
            if first is not None and run.sequence >= first.sequence:
                alive.append(run)
        self._runs = alive
        self._sequences = [run.sequence for run in alive]
        self._dead = 0


def _first_from(runs: Sequence[Run], at: int, sequence: int) -> Run | None:
    """Of the run at a place and the one after it, the first that has sequences from this one on, cut to begin with it."""
    for run in runs[at : at + 2]:
        if run.end_sequence > sequence:
            skipped = max(sequence - run.sequence, 0)
            return Run(run.sequence + skipped, run.subject, run.offset + skipped, run.length - skipped) if skipped else run
    return None
