"""`penstock stream init-tarantool`: the schema of streams in a Tarantool."""

from __future__ import annotations

import asyncio

from penstock.cli.exit_codes import ExitCode
from penstock.cli.failure import CommandError
from penstock.core.errors import PenstockError, UnavailableError


def init_tarantool(url: str) -> int:
    """Install the schema; doing it again changes nothing but the functions."""
    try:
        from penstock.broker.streams.tarantool import connect, disconnect, install
    except ModuleNotFoundError as error:
        raise CommandError(f"{error.name} is not installed; run: pip install 'penstock[tarantool]'", ExitCode.USAGE) from error

    async def work() -> None:
        connection = await connect(url)
        try:
            await install(connection)
        finally:
            await disconnect(connection)

    try:
        asyncio.run(work())
    except UnavailableError as error:
        raise CommandError(str(error), ExitCode.NO_CONNECTION) from error
    except PenstockError as error:
        raise CommandError(str(error)) from error
    print("the spaces, indexes and functions of streams are there")
    return ExitCode.OK
