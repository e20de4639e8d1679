"""`penstock stream init-tarantool`: the schema of streams in a Tarantool."""

from __future__ import annotations

import asyncio

from penstock.cli.exit_codes import ExitCode
from penstock.cli.failure import CommandError
from penstock.core.errors import PenstockError, UnavailableError


def init_tarantool(url: str) -> int:
    """Install the schema; doing it again changes nothing but the functions."""
    from penstock.server.tarantool_schema import install_schema

    try:
        asyncio.run(install_schema(url))
    except ModuleNotFoundError as error:
        raise CommandError(f"{error.name} is not installed; run: pip install 'penstock[tarantool]'", ExitCode.USAGE) from error
    except UnavailableError as error:
        raise CommandError(str(error), ExitCode.NO_CONNECTION) from error
    except PenstockError as error:
        raise CommandError(str(error)) from error
    print("the spaces, indexes and functions of streams are up to date")
    return ExitCode.OK
