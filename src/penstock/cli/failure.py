"""The one way a command gives up: a sentence for a person and an exit code for a script."""

from __future__ import annotations

from penstock.cli.exit_codes import ExitCode
from penstock.core.errors import PenstockError


class CommandError(Exception):
    """The command cannot be carried out. The message says what happened and what to do."""

    def __init__(self, message: str, exit_code: ExitCode = ExitCode.FAILED) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def usage(message: str) -> CommandError:
    """Return the error for arguments that are not as they must be."""
    return CommandError(message, ExitCode.USAGE)


def as_command_error(error: CommandError | PenstockError) -> CommandError:
    """Turn an error of a client into a sentence that names commands and options, with its exit code."""
    if isinstance(error, CommandError):
        return error
    from penstock.kafka.client import BrokerUnreachableError, RequestRefusedError

    if isinstance(error, RequestRefusedError):
        return CommandError(_explain(error.subject, error.error_code, error.reason))
    if isinstance(error, BrokerUnreachableError):
        return CommandError(str(error), ExitCode.NO_CONNECTION)
    return CommandError(str(error))


def _explain(subject: str, error_code: int, reason: str | None) -> str:
    from penstock.kafka.protocol import errors

    name = errors.error_name(error_code)
    if reason:
        return f"{subject}: {reason} ({name})"
    denied = "no access rule allows it ({name}); the administrator adds one with `penstock access allow`"
    sentences = {
        errors.UNKNOWN_TOPIC_OR_PARTITION: "there is no such topic or partition; `penstock topic list` lists the topics",
        errors.OFFSET_OUT_OF_RANGE: "the offset is out of range ({name}); `penstock topic describe` shows the range",
        errors.MESSAGE_TOO_LARGE: "the message is too large for the topic ({name}); raise its max.message.bytes",
        errors.TOPIC_ALREADY_EXISTS: "the topic exists already ({name})",
        errors.INVALID_TOPIC_EXCEPTION: "invalid topic name ({name}); use letters, digits, '.', '_' and '-'",
        errors.KAFKA_STORAGE_ERROR: "the node cannot store it ({name}); `penstock status` says why",
        errors.TOPIC_AUTHORIZATION_FAILED: denied,
        errors.GROUP_AUTHORIZATION_FAILED: denied,
        errors.CLUSTER_AUTHORIZATION_FAILED: denied,
    }
    return f"{subject}: {sentences.get(error_code, '{name}').format(name=name)}"
