r"""Regular expressions over topic names, matched as a whole name in time that grows with its length and never explodes.

The language is what RE2 and Python have in common and names can use: characters, `.`, classes, groups, `|`, `* + ? {n,m}`,
`^`, `$`, `\d \w \s` and the flags i, m, s, U. There are no back references and no looking around. A pattern becomes a
nondeterministic automaton of bounded size; the sets of its states that names lead to are remembered, up to a bound.
"""

from __future__ import annotations

import string
from collections.abc import Iterable
from typing import Final, NamedTuple

from penstock.core.errors import InvalidRequestError

PATTERN_SIZE_MAX = 4096
NODES_MAX = 20_000
REPEAT_MAX = 1000
DEPTH_MAX = 100
SETS_MAX = 10_000
VISITS_MAX = 1_000_000  # of states, over all names; what was found is remembered, so that patterns people write need few

ALPHABET: Final = frozenset(string.ascii_letters + string.digits + "._-")
_DIGIT: Final = frozenset(string.digits)
_WORD: Final = frozenset(string.ascii_letters + string.digits + "_")
_ESCAPED_CLASSES: Final = {
    "d": _DIGIT,
    "D": ALPHABET - _DIGIT,
    "w": _WORD,
    "W": ALPHABET - _WORD,
    "s": frozenset[str](),
    "S": ALPHABET,
}
_NAMED_CLASSES: Final = {
    "alnum": frozenset(string.ascii_letters + string.digits),
    "alpha": frozenset(string.ascii_letters),
    "digit": _DIGIT,
    "lower": frozenset(string.ascii_lowercase),
    "punct": frozenset("._-"),
    "upper": frozenset(string.ascii_uppercase),
    "word": _WORD,
    "xdigit": frozenset(string.hexdigits),
}
_CONTROLS: Final = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}
_FLAGS: Final = frozenset("imsU")


class InvalidPatternError(InvalidRequestError):
    """A regular expression that is not one, or that costs too much to match."""

    code = "invalid_regular_expression"


class _Node(NamedTuple):
    """A state of the automaton. With `characters` it takes one of them and goes on to `ways`; without, it goes on by itself, an
    anchor only at the place it stands for."""

    characters: frozenset[str] | None
    ways: list[int]
    anchor: str = ""


class TopicPattern:
    """A compiled pattern."""

    def __init__(self, pattern: str) -> None:
        parser = _Parser(pattern)
        start, self._end = parser.parse()
        self._nodes = parser.nodes
        self._visits = 0
        self._first = self._closure([start], "^")
        self._steps: dict[tuple[frozenset[int], str], frozenset[int]] = {}
        self._verdicts: dict[frozenset[int], bool] = {}

    def matches(self, name: str) -> bool:
        """Whether the whole name fits. InvalidPatternError if that takes too long to find out."""
        states = self._first
        for character in name:
            following = self._steps.get((states, character))
            if following is None:
                following = self._step(states, character)
            if not following:
                return False
            states = following
        if not name:
            return self._end in self._closure(states, "^", "$")
        verdict = self._verdicts.get(states)
        if verdict is None:
            verdict = self._verdicts[states] = self._end in self._closure(states, "$")
        return verdict

    def _step(self, states: frozenset[int], character: str) -> frozenset[int]:
        reached: list[int] = []
        for number in states:
            node = self._nodes[number]
            if node.characters is not None and character in node.characters:
                reached += node.ways
        following = self._closure(reached)
        self._count(len(states))
        if len(self._steps) >= SETS_MAX:
            self._steps.clear()
            self._verdicts.clear()
        self._steps[states, character] = following
        return following

    def _closure(self, states: Iterable[int], *anchors: str) -> frozenset[int]:
        """All states that can be had without another character. Anchors that do not hold here stay, in case they do later."""
        found = set(states)
        waiting = list(found)
        while waiting:
            node = self._nodes[waiting.pop()]
            if node.characters is None and (not node.anchor or node.anchor in anchors):
                fresh = [way for way in node.ways if way not in found]
                found.update(fresh)
                waiting += fresh
        self._count(len(found))
        return frozenset(found)

    def _count(self, visits: int) -> None:
        self._visits += visits
        if self._visits > VISITS_MAX:
            raise InvalidPatternError("the regular expression is too costly to match: use fewer repetitions inside repetitions")


class _Parser:
    """Reads a pattern from left to right and builds the automaton as it goes: a fragment is where it begins and where it ends."""

    def __init__(self, pattern: str) -> None:
        if len(pattern) > PATTERN_SIZE_MAX:
            raise InvalidPatternError(
                f"the regular expression has {len(pattern)} characters, at most {PATTERN_SIZE_MAX} are taken"
            )
        self._text = pattern
        self._at = 0
        self._depth = 0
        self._ignores_case = False
        self.nodes: list[_Node] = []

    def parse(self) -> tuple[int, int]:
        """The first and the last state."""
        found = self._alternatives()
        if self._at < len(self._text):
            raise self._wrong("there is a ')' without its '('")
        return found

    def _alternatives(self) -> tuple[int, int]:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise self._wrong(f"groups are nested more than {DEPTH_MAX} deep")
        ignores_case = self._ignores_case
        branches = [self._sequence()]
        while self._take("|"):
            branches.append(self._sequence())
        self._ignores_case = ignores_case
        self._depth -= 1
        if len(branches) == 1:
            return branches[0]
        begin, end = self._node(), self._node()
        for first, last in branches:
            self.nodes[begin].ways.append(first)
            self.nodes[last].ways.append(end)
        return begin, end

    def _sequence(self) -> tuple[int, int]:
        begin = end = self._node()
        while self._at < len(self._text) and self._text[self._at] not in "|)":
            first, last = self._repeated()
            self.nodes[end].ways.append(first)
            end = last
        return begin, end

    def _repeated(self) -> tuple[int, int]:
        begin, before = self._at, self._ignores_case
        fragment = self._atom()
        after = self._at
        count = self._repetition()
        if count is None:
            return fragment
        if self._repetition_follows():
            raise self._wrong("a repetition is repeated")
        resume = self._at
        low, high = count
        parts = [fragment]
        for _ in range(max(low, high or 0) - 1):
            # The same piece of the pattern is read once more for each copy.
            self._at, self._ignores_case = begin, before
            parts.append(self._atom())
            assert self._at == after
        self._at = resume
        return self._joined(parts, low, high)

    def _joined(self, parts: list[tuple[int, int]], low: int, high: int | None) -> tuple[int, int]:
        """Copies in a row, of which `low` are needed; without `high` the last may come again and again."""
        begin, end = self._node(), self._node()
        at = begin
        for number, (first, last) in enumerate(parts):
            if high == 0:
                break
            self.nodes[at].ways.append(first)
            if number >= low:
                self.nodes[at].ways.append(end)
            at = self._node()
            self.nodes[last].ways.append(at)
            if high is None and number == len(parts) - 1:
                self.nodes[at].ways.append(first)
        self.nodes[at].ways.append(end)
        return begin, end

    def _repetition(self) -> tuple[int, int | None] | None:
        """How often what stands before may come, if that is said here."""
        simple: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
        sign = self._peek()
        count = simple.get(sign)
        if count is not None:
            self._at += 1
        elif sign == "{":
            count = self._counted()
        if count is not None:
            self._take("?")  # a preference for less: the same names match
        return count

    def _repetition_follows(self) -> bool:
        sign = self._peek()
        return sign in ("*", "+", "?") or (sign == "{" and self._counted() is not None)

    def _counted(self) -> tuple[int, int | None] | None:
        """{n}, {n,} or {n,m}; anything else in braces stands for itself."""
        close = self._text.find("}", self._at)
        low, comma, high = self._text[self._at + 1 : max(close, 0)].partition(",")
        if close < 0 or not _is_number(low) or (high and not _is_number(high)):
            return None
        least = int(low)
        most = least if not comma else int(high) if high else None
        if max(least, most or 0) > REPEAT_MAX or (most is not None and most < least):
            raise self._wrong(f"a repetition is counted upwards, to {REPEAT_MAX} at most")
        self._at = close + 1
        return least, most

    def _atom(self) -> tuple[int, int]:
        sign = self._next()
        if sign == "(":
            return self._group()
        if sign == "[":
            return self._characters(self._class())
        if sign == ".":
            return self._characters(ALPHABET)
        if sign in "^$":
            return self._anchor(sign)
        if sign == "\\":
            return self._escape()
        if sign in "*+?":
            raise self._wrong(f"nothing stands before {sign!r}")
        return self._characters(frozenset(sign))

    def _group(self) -> tuple[int, int]:
        inside: str | None = None
        before = self._ignores_case
        if self._take("?"):
            if self._take("P<") or (
                self._peek() == "<" and not self._text.startswith(("<=", "<!"), self._at) and self._take("<")
            ):
                self._name()
            else:
                inside = self._flags()
        if inside == ")":
            return self._characters(None)
        found = self._alternatives()
        if not self._take(")"):
            raise self._wrong("a '(' has no ')'")
        self._ignores_case = before
        return found

    def _name(self) -> None:
        close = self._text.find(">", self._at)
        if close < 0 or not self._text[self._at : close].isidentifier():
            raise self._wrong("a group has no proper name")
        self._at = close + 1

    def _flags(self) -> str:
        """Flags after "(?", for the group that begins here (":") or for what follows in the one around it (")")."""
        switched_on = True
        while (sign := self._next()) not in ":)":
            if sign == "-" and switched_on:
                switched_on = False
            elif sign not in _FLAGS:
                raise self._wrong(f"(?{sign} is not supported")
            elif sign == "i":
                self._ignores_case = switched_on
        return sign

    def _escape(self) -> tuple[int, int]:
        sign = self._next()
        if sign in _ESCAPED_CLASSES:
            return self._characters(_ESCAPED_CLASSES[sign])
        if sign in "Az":
            return self._anchor("^" if sign == "A" else "$")
        if sign == "Q":
            return self._quoted()
        return self._characters(frozenset(self._escaped_character(sign)))

    def _quoted(self) -> tuple[int, int]:
        close = self._text.find("\\E", self._at)
        quoted = self._text[self._at :] if close < 0 else self._text[self._at : close]
        self._at = len(self._text) if close < 0 else close + 2
        begin = end = self._node()
        for character in quoted:
            first, last = self._characters(frozenset(character))
            self.nodes[end].ways.append(first)
            end = last
        return begin, end

    def _escaped_character(self, sign: str) -> str:
        if sign == "x":
            digits = self._text[self._at : self._at + 2]
            if len(digits) == 2 and set(digits) <= set(string.hexdigits):
                self._at += 2
                return chr(int(digits, 16))
            raise self._wrong("\\x is followed by two hexadecimal digits")
        if sign in _CONTROLS:
            return _CONTROLS[sign]
        if sign.isascii() and sign.isalnum():
            raise self._wrong(f"\\{sign} is not supported")
        return sign

    def _class(self) -> frozenset[str]:
        negated = self._take("^")
        found: set[str] = set()
        is_first = True
        while is_first or self._peek() != "]":
            is_first = False
            named = self._named_class()
            if named is not None:
                found |= named
                continue
            low, several = self._class_item()
            if several is not None:
                found |= several
            elif self._peek() == "-" and self._text[self._at + 1 : self._at + 2] not in ("]", ""):
                self._at += 1
                high, several = self._class_item()
                if several is not None or high < low:
                    raise self._wrong("a range in a class goes from a character to a later one")
                found.update(character for character in ALPHABET if low <= character <= high)
            else:
                found.add(low)
        self._at += 1
        if self._ignores_case:
            found = _any_case(found)
        return ALPHABET - found if negated else frozenset(found)

    def _class_item(self) -> tuple[str, frozenset[str] | None]:
        sign = self._next()
        if sign != "\\":
            return sign, None
        sign = self._next()
        several = _ESCAPED_CLASSES.get(sign)
        return ("", several) if several is not None else (self._escaped_character(sign), None)

    def _named_class(self) -> frozenset[str] | None:
        if not self._text.startswith("[:", self._at):
            return None
        close = self._text.find(":]", self._at)
        name = self._text[self._at + 2 : max(close, 0)]
        known = _NAMED_CLASSES.get(name.removeprefix("^"))
        if known is None:
            raise self._wrong(f"there is no class [:{name}:]")
        self._at = close + 2
        return ALPHABET - known if name.startswith("^") else known

    def _characters(self, characters: frozenset[str] | None) -> tuple[int, int]:
        """A state that takes one of these characters; with None, one that takes nothing."""
        if characters is not None and self._ignores_case:
            characters = frozenset(_any_case(characters))
        end = self._node()
        return self._node(characters, [end]), end

    def _anchor(self, anchor: str) -> tuple[int, int]:
        end = self._node()
        return self._node(None, [end], anchor), end

    def _node(self, characters: frozenset[str] | None = None, ways: list[int] | None = None, anchor: str = "") -> int:
        if len(self.nodes) >= NODES_MAX:
            raise self._wrong("it is too large, with its repetitions written out")
        self.nodes.append(_Node(characters, [] if ways is None else ways, anchor))
        return len(self.nodes) - 1

    def _next(self) -> str:
        if self._at == len(self._text):
            raise self._wrong("it ends too early")
        self._at += 1
        return self._text[self._at - 1]

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _take(self, expected: str) -> bool:
        found = self._text.startswith(expected, self._at)
        if found:
            self._at += len(expected)
        return found

    def _wrong(self, reason: str) -> InvalidPatternError:
        return InvalidPatternError(f"the regular expression {self._text[:100]!r} is wrong at character {self._at}: {reason}")


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 5


def _any_case(characters: Iterable[str]) -> set[str]:
    return {form for character in characters for form in (character, character.lower(), character.upper())}
