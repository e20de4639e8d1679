"""Which server a command talks to, and as whom: by its options, the environment, or a profile.

Every command takes `--bootstrap`. The addresses of the admin API and of streams are asked from that node, unless they are given.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from penstock.cli.failure import CommandError, as_command_error, usage
from penstock.cli.profile_file import Profile, load_profiles
from penstock.core.errors import PenstockError

if TYPE_CHECKING:
    from penstock.cli.kafka_client import CommandClient
    from penstock.client.identity import Identity

Kind = Literal["bootstrap", "http", "stream"]

DEFAULTS: Final[dict[Kind, str]] = {
    "bootstrap": "127.0.0.1:9092",
    "http": "http://127.0.0.1:8080",
    "stream": "127.0.0.1:50051",
}
ADDRESS_VARIABLES: Final[dict[Kind, str]] = {
    "bootstrap": "PENSTOCK_BOOTSTRAP",
    "http": "PENSTOCK_HTTP",
    "stream": "PENSTOCK_STREAM",
}
PROFILE_VARIABLE: Final = "PENSTOCK_PROFILE"
USER_VARIABLE: Final = "PENSTOCK_USER"
PASSWORD_VARIABLE: Final = "PENSTOCK_PASSWORD"
TLS_CA_VARIABLE: Final = "PENSTOCK_TLS_CA"


class Connection:
    """The server and the identity that arguments name.

    Options come first, then variables, then the profile. A profile that is named, by --profile or its variable, replaces the
    other variables. A profile's password goes to the servers of that profile: the current profile applies only if neither options
    nor variables name a server, and one that the variable names only if no option does. Giving --profile together with an
    address asks for the profile's sign-in there.
    """

    def __init__(self, arguments: argparse.Namespace, environment: Mapping[str, str] = os.environ) -> None:
        self._arguments = arguments
        self._options = {kind: getattr(arguments, kind, None) for kind in DEFAULTS}
        has_address = any(self._options.values())
        named = arguments.profile or (None if has_address else environment.get(PROFILE_VARIABLE))
        self._variables: Mapping[str, str] = {} if named else environment
        self._profile = self._chosen_profile(named)

    def is_named(self) -> bool:
        """Whether a server is named anywhere; otherwise it is the default one."""
        return self._profile is not None or self._has_address()

    def address(self, kind: Kind) -> str:
        """The address of a listener. It may ask the server for it."""
        addresses = {name: self._variables.get(variable) for name, variable in ADDRESS_VARIABLES.items()}
        saved = {name: None if self._profile is None else getattr(self._profile, name) for name in DEFAULTS}
        for source in (self._options, addresses, saved):
            if given := source[kind]:
                return given
            if bootstrap := source["bootstrap"]:
                return self._ask(bootstrap, kind)
        return DEFAULTS[kind]

    def client(self) -> CommandClient:
        """A Kafka client, which connects when it is first used."""
        return self._client(self.address("bootstrap"))

    def identity(self) -> Identity:
        """The user to sign in as, if any, and the certificates to trust."""
        from penstock.client.identity import Identity

        saved = self._profile
        tls_ca = self._arguments.tls_ca or self._variables.get(TLS_CA_VARIABLE) or (saved.tls_ca if saved else None)
        user = self._arguments.user or self._variables.get(USER_VARIABLE)
        if user is None and saved is not None and saved.user is not None:
            return Identity(saved.user, self._saved_password(saved), tls_ca)
        if user is None:
            if self._arguments.password_file is not None:
                raise usage("--password-file needs --user")
            return Identity(tls_ca=tls_ca)
        return Identity(user, self._password(user), tls_ca)

    def _chosen_profile(self, name: str | None) -> Profile | None:
        if name:
            return load_profiles().named(name)
        if self._has_address():
            return None
        profiles = load_profiles()
        return None if profiles.current is None else profiles.named(profiles.current)

    def _has_address(self) -> bool:
        named = (self._variables.get(variable) for variable in ADDRESS_VARIABLES.values())
        return any(self._options.values()) or any(named)

    def _client(self, bootstrap: str) -> CommandClient:
        from penstock.cli.kafka_client import CommandClient

        return CommandClient(bootstrap, self._arguments.timeout, self.identity())

    def _ask(self, bootstrap: str, kind: Kind) -> str:
        """The address of a listener, by the configuration of the node that serves."""
        from penstock.client.listeners import find_listeners
        from penstock.kafka.client import finish

        try:
            with self._client(bootstrap) as client:
                listeners = finish(find_listeners(client.coroutines))
        except PenstockError as error:
            failure = as_command_error(error)
            raise CommandError(f"{failure}; or give --{kind}", failure.exit_code) from error
        address = listeners.get(kind)
        if address is None:
            raise CommandError(f"{bootstrap} has no {kind} listener; set {kind}_port of the node, or give --{kind}")
        return address

    def _password(self, user: str) -> str:
        if self._arguments.password_file is not None:
            return read_password("--password-file", self._arguments.password_file)
        password = self._variables.get(PASSWORD_VARIABLE)
        if password is None:
            raise usage(f"user {user!r} has no password here; set {PASSWORD_VARIABLE} or give --password-file")
        return password

    def _saved_password(self, profile: Profile) -> str:
        if self._arguments.password_file is not None:
            return read_password("--password-file", self._arguments.password_file)
        if profile.password is not None:
            return profile.password
        return read_password("password_file of the profile", profile.password_file or "")


def identity_elsewhere(arguments: argparse.Namespace, server: str, environment: Mapping[str, str] = os.environ) -> Identity:
    """The sign-in at a server that `--SERVER` names beside the node, by options of its own: neither the password of a profile nor
    that of the node is sent to another server."""
    from penstock.client.identity import Identity

    user, password_file, tls_ca = (getattr(arguments, f"{server}_{name}") for name in ("user", "password_file", "tls_ca"))
    if getattr(arguments, server) is None and (user or password_file or tls_ca):
        raise usage(f"--{server}-user, --{server}-password-file and --{server}-tls-ca need --{server}")
    if user is None:
        if password_file is not None:
            raise usage(f"--{server}-password-file needs --{server}-user")
        return Identity(tls_ca=tls_ca)
    if password_file is not None:
        return Identity(user, read_password(f"--{server}-password-file", password_file), tls_ca)
    variable = f"PENSTOCK_{server.upper()}_PASSWORD"
    if (password := environment.get(variable)) is None:
        raise usage(f"user {user!r} has no password here; set {variable} or give --{server}-password-file")
    return Identity(user, password, tls_ca)


def read_password(option: str, file: str) -> str:
    """Reads a file that contains a password."""
    try:
        return Path(file).read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise usage(f"{option}: {file} cannot be read: {error}") from error
