"""What a topic configuration is for people who edit it: a duration, a size, one of some words, and what each allows."""

from __future__ import annotations

from typing import Literal, NamedTuple

from penstock.broker.config_values import BOOLEAN, OneOf, SomeOf, WholeNumber
from penstock.broker.segment_config import WITHOUT_EFFECT
from penstock.broker.topic_config import KEYS, ConfigKey

ConfigFormName = Literal["duration", "size", "number", "boolean", "choice", "choices", "list", "text"]


class ConfigForm(NamedTuple):
    """How a key is edited: a duration is in ms, a size in bytes. `choices` are the words that are allowed, empty if any text or
    number is; `unlimited` is the value that means: no limit."""

    form: ConfigFormName
    choices: list[str]
    low: int | None
    high: int | None
    unlimited: str | None
    has_effect: bool


def config_form(name: str) -> ConfigForm:
    """How a key of topics is edited."""
    key = KEYS[name]
    number = key.check if isinstance(key.check, WholeNumber) else None
    return ConfigForm(
        form=_form(name, key),
        choices=list(key.check.allowed) if isinstance(key.check, OneOf | SomeOf) else [],
        low=None if number is None else number.low,
        high=None if number is None else number.high,
        unlimited=None if number is None or number.unlimited is None else str(number.unlimited),
        has_effect=not key.doc.startswith(WITHOUT_EFFECT),
    )


def _form(name: str, key: ConfigKey) -> ConfigFormName:
    if isinstance(key.check, SomeOf):
        return "choices"
    if isinstance(key.check, OneOf):
        return "boolean" if key.check == BOOLEAN else "choice"
    if key.kind in ("string", "list"):
        return "list" if key.kind == "list" else "text"
    if name.endswith(".ms"):
        return "duration"
    return "size" if name.endswith("bytes") else "number"
