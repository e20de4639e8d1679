"""Names of subjects, and patterns for several: words with dots between them, `*` for one word, `>` for all that follow."""

from __future__ import annotations

from typing import Final

from penstock.broker.errors import InvalidTopicNameError
from penstock.broker.internal_topics import INTERNAL_TOPICS
from penstock.broker.streams.errors import InvalidSubjectError
from penstock.broker.topic import check_name

ONE: Final = "*"
REST: Final = ">"
PATTERN_SIZE_MAX: Final = 249  # as a name has


def is_pattern(subject: str) -> bool:
    """Whether this is a pattern of several subjects."""
    if ONE not in subject and REST not in subject:  # as in most
        return False
    return any(word in (ONE, REST) for word in subject.split("."))


def check_subject(subject: str) -> None:
    """InvalidSubjectError unless this can be the name of one subject. A subject is named as its topic is."""
    try:
        check_name(subject)
    except InvalidTopicNameError as error:
        raise InvalidSubjectError(f"subject {subject!r}: {error}") from error
    if subject in INTERNAL_TOPICS:
        raise InvalidSubjectError(f"{subject!r} is a topic of the broker itself; choose another subject")


def check_pattern(pattern: str) -> None:
    """InvalidSubjectError unless this is a pattern of subjects."""
    if len(pattern) > PATTERN_SIZE_MAX:
        raise InvalidSubjectError(f"a pattern has at most {PATTERN_SIZE_MAX} characters, not {len(pattern)}")
    words = pattern.split(".")
    if REST in words[:-1] or any(not word for word in words):
        raise InvalidSubjectError(f"{pattern!r}: words are not empty, {ONE!r} stands for one of them and {REST!r} comes last")
    for word in words:
        if word not in (ONE, REST):
            check_subject(word)


def matches(pattern: str, subject: str) -> bool:
    """Whether a pattern matches a subject. Internal topics of the broker are no subjects, and match none."""
    if subject in INTERNAL_TOPICS:
        return False
    wanted, words = pattern.split("."), subject.split(".")
    if wanted[-1] == REST:
        wanted = wanted[:-1]
        if len(words) <= len(wanted):
            return False
        words = words[: len(wanted)]
    return len(wanted) == len(words) and all(
        pattern_word in (ONE, word) for pattern_word, word in zip(wanted, words, strict=True)
    )


def consumes(own: str, requested: str) -> bool:
    """Whether a consumer of one subject or pattern is one of those that another asks for."""
    return (
        own == requested or (is_pattern(own) and matches(own, requested)) or (is_pattern(requested) and matches(requested, own))
    )
