"""The one way a command gives up: a sentence for a person and an exit code for a script."""

from __future__ import annotations

from penstock.cli.exit_codes import ExitCode


class CommandError(Exception):
    """The command cannot be carried out. The message says what happened and what to do."""

    def __init__(self, message: str, exit_code: ExitCode = ExitCode.FAILED) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def usage(message: str) -> CommandError:
    """What was asked for is not as it must be."""
    return CommandError(message, ExitCode.USAGE)
