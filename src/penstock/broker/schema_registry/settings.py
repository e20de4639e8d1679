"""Compatibility levels and modes of subjects, contexts and the registry as a whole: what is set, and what applies."""

from __future__ import annotations

from typing import Any, Final

from penstock.broker.schema_registry.errors import (
    RegistryError,
    invalid_level,
    invalid_mode,
    level_not_configured,
    mode_not_configured,
    operation_not_permitted,
)
from penstock.broker.schema_registry.names import DEFAULT_CONTEXT, context_of
from penstock.broker.schema_registry.state import RegistryState
from penstock.schemas import DEFAULT_LEVEL, LEVELS

READWRITE, READONLY, READONLY_OVERRIDE, IMPORT = "READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT"
MODES: Final = (READWRITE, READONLY, READONLY_OVERRIDE, IMPORT)
_SETTINGS: Final = {"compatibility", "normalize", "compatibilityGroup"}


def scopes(subject: str | None) -> list[str | None]:
    """Where settings of a subject are looked for, the nearest first: itself, its context, the whole registry."""
    if subject is None:
        return [None]
    context = context_of(subject)
    return [subject, None] if context == DEFAULT_CONTEXT else [subject, f":{context}:", None]


def config_of(state: RegistryState, subject: str | None, *, inherited: bool) -> dict[str, Any]:
    """The settings of a subject as they are reported; with `inherited`, what applies where it has none."""
    for scope in scopes(subject) if inherited else [subject]:
        if scope in state.configs:
            return state.configs[scope]
    if subject is not None and not inherited:
        raise level_not_configured(subject)
    return {"compatibilityLevel": DEFAULT_LEVEL}


def setting_of(state: RegistryState, subject: str, name: str) -> Any:
    """One setting that applies to a subject; None if it is not set."""
    values = (state.configs.get(scope, {}).get(name) for scope in scopes(subject))
    return next((value for value in values if value is not None), None)


def level_of(state: RegistryState, subject: str) -> str:
    """The compatibility level that applies to a subject."""
    return str(setting_of(state, subject, "compatibilityLevel") or DEFAULT_LEVEL)


def mode_of(state: RegistryState, subject: str | None, *, inherited: bool) -> str:
    """The mode of a subject; with `inherited`, the one that applies."""
    if inherited and state.modes.get(None) == READONLY_OVERRIDE:
        return READONLY_OVERRIDE
    for scope in scopes(subject) if inherited else [subject]:
        if scope in state.modes:
            return state.modes[scope]
    if subject is not None and not inherited:
        raise mode_not_configured(subject)
    return READWRITE


def check_writable(state: RegistryState, subject: str) -> str:
    """The mode of a subject that is about to change. Raises if it is read-only."""
    mode = mode_of(state, subject, inherited=True)
    if mode in (READONLY, READONLY_OVERRIDE):
        raise operation_not_permitted(f"Subject {subject} in context {context_of(subject)} is in read-only mode")
    return mode


def checked_config(given: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    """The settings after a change; null takes one away."""
    unknown = sorted(name for name, value in given.items() if name not in _SETTINGS and value is not None)
    if unknown:
        raise RegistryError(422, f"{', '.join(unknown)} cannot be set here; settings are {', '.join(sorted(_SETTINGS))}")
    level = given.get("compatibility")
    if level is not None and (not isinstance(level, str) or level.upper() not in LEVELS):
        raise invalid_level(str(level))
    if not isinstance(given.get("normalize"), bool | None) or not isinstance(given.get("compatibilityGroup"), str | None):
        raise RegistryError(422, "normalize is true or false, compatibilityGroup the name of a property")
    changed = dict(before)
    for name, value in given.items():
        stored = "compatibilityLevel" if name == "compatibility" else name
        if value is None:
            changed.pop(stored, None)
        elif name in _SETTINGS:
            changed[stored] = value.upper() if name == "compatibility" else value
    return changed


def checked_mode(mode: Any) -> str:
    """A mode by its name."""
    if not isinstance(mode, str) or mode.upper() not in MODES:
        raise invalid_mode(str(mode))
    return mode.upper()
