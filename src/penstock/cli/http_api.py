"""The admin API of a node, for commands that look after it, and its schema registry."""

from __future__ import annotations

import argparse
from typing import Any, Final

from penstock.cli.connection import ADDRESS_VARIABLES, Connection
from penstock.cli.exit_codes import ExitCode
from penstock.cli.failure import CommandError, usage
from penstock.client.admin_api import API_PREFIX, AdminApi, AdminNames, AdminRefusedError, AdminUnreachableError
from penstock.client.identity import Identity
from penstock.core.errors import ConfigError

_NAMES: Final = AdminNames(
    f"--http or {ADDRESS_VARIABLES['http']}",
    "--user NAME and --password-file FILE (or PENSTOCK_USER and PENSTOCK_PASSWORD)",
    "--tls-ca",
)


class HttpApi:
    """Calls the admin API of one node, or what is below another prefix."""

    def __init__(
        self, url: str, identity: Identity, timeout_s: float, prefix: str = API_PREFIX, names: AdminNames = _NAMES
    ) -> None:
        try:
            self._api = AdminApi(url, identity, timeout_s, prefix, names)
        except ConfigError as error:
            raise usage(str(error)) from error

    def get(self, path: str) -> Any:
        """What is there."""
        return self.call("GET", path)

    def call(self, method: str, path: str, body: object = None, timeout_s: float | None = None) -> Any:
        """One call, which may be given longer than others; CommandError says why it did not succeed."""
        try:
            return self._api.call(method, path, body, timeout_s)
        except ConfigError as error:
            raise usage(str(error)) from error
        except AdminUnreachableError as error:
            raise CommandError(str(error), ExitCode.NO_CONNECTION) from error
        except AdminRefusedError as error:
            raise CommandError(str(error)) from error


def make_api(arguments: argparse.Namespace) -> HttpApi:
    """The API that the options ask for; it connects when it is used."""
    connection = Connection(arguments)
    return HttpApi(connection.address("http"), connection.identity(), arguments.timeout)
