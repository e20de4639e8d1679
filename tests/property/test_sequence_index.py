"""The index of sequences against a list: whatever is added and forgotten, every lookup says the same."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.broker.streams.sequence_index import RUN_MESSAGES_MAX, Run, SequenceIndex

SUBJECTS = 3
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(1, SUBJECTS), st.integers(1, 5)),
        st.tuples(st.just("trim"), st.integers(1, SUBJECTS), st.integers(1, 9)),
        st.tuples(st.just("drop"), st.integers(1, SUBJECTS), st.just(0)),
    ),
    max_size=60,
)


class Model:
    """Every message by itself: (sequence, subject, offset)."""

    def __init__(self) -> None:
        self.messages: list[tuple[int, int, int]] = []
        self.ends = dict.fromkeys(range(1, SUBJECTS + 1), 0)
        self.starts = dict.fromkeys(range(1, SUBJECTS + 1), 0)
        self.next_sequence = 1

    def alive(self) -> list[tuple[int, int, int]]:
        """Messages that are not trimmed."""
        return [one for one in self.messages if one[2] >= self.starts[one[1]]]


def _add(index: SequenceIndex, model: Model, subject: int, count: int) -> None:
    offset = model.ends[subject]
    run = index.grown(subject, offset, count, index.next_sequence, index.last_run)
    assert run.end_sequence == model.next_sequence + count
    index.add(run)
    for at in range(count):
        model.messages.append((model.next_sequence + at, subject, offset + at))
    model.next_sequence += count
    model.ends[subject] += count


@given(STEPS)
def test_every_lookup_is_as_in_a_list(steps: list[tuple[str, int, int]]) -> None:
    index, model = SequenceIndex(), Model()
    dropped: set[int] = set()
    for what, subject, amount in steps:
        if subject in dropped:
            continue
        if what == "add":
            _add(index, model, subject, amount)
        elif what == "trim":
            model.starts[subject] = min(model.starts[subject] + amount, model.ends[subject])
            index.forget(subject, len(index.subject(subject).forgettable(model.starts[subject])))
        else:
            index.forget_subject(subject)
            model.messages = [one for one in model.messages if one[1] != subject]
            dropped.add(subject)
    assert index.next_sequence == model.next_sequence
    alive = model.alive()
    for sequence, subject, offset in alive:
        run = index.find(sequence)
        assert run is not None
        assert (run.subject, run.offset + sequence - run.sequence) == (subject, offset)
        assert index.subject(subject).sequence_of(offset) == sequence
    for subject in set(range(1, SUBJECTS + 1)) - dropped:
        runs = index.subject(subject)
        own = [one for one in alive if one[1] == subject]
        for after in range(model.next_sequence):
            following = next((one for one in own if one[0] > after), None)
            found = runs.next_run(after + 1)
            while found is not None and found.end_offset <= model.starts[subject]:
                found = runs.next_run(found.end_sequence)
            if following is None:
                assert found is None
            else:
                assert found is not None
                skipped = max(model.starts[subject] - found.offset, 0)
                assert (found.sequence + skipped, found.offset + skipped) == (following[0], following[2])


@given(STEPS)
def test_what_is_stored_builds_the_same_index(steps: list[tuple[str, int, int]]) -> None:
    index, model = SequenceIndex(), Model()
    stored: dict[bytes, bytes] = {}
    for what, subject, amount in steps:
        if what == "add":
            _add(index, model, subject, amount)
            run = index.last_run
            assert run is not None
            stored[run.key] = run.pack()
    again = SequenceIndex()
    for key in sorted(stored):
        again.add(Run.unpack(key, stored[key]))
    assert again.next_sequence == index.next_sequence
    assert [again.find(sequence) for sequence, _, _ in model.messages] == [index.find(one) for one, _, _ in model.messages]


def test_a_run_does_not_grow_without_end() -> None:
    index = SequenceIndex()
    full = Run(1, 1, 0, RUN_MESSAGES_MAX)
    assert index.grown(1, RUN_MESSAGES_MAX, 1, RUN_MESSAGES_MAX + 1, full) == Run(RUN_MESSAGES_MAX + 1, 1, RUN_MESSAGES_MAX, 1)
