"""`penstock profile`: servers saved under a name, so that commands need no options to reach them."""

from __future__ import annotations

import argparse
import sys
from getpass import getpass
from pathlib import Path

from penstock.cli.client_options import output_options
from penstock.cli.command_parser import CommandParser
from penstock.cli.exit_codes import ExitCode
from penstock.cli.failure import CommandError, usage
from penstock.cli.output import Output
from penstock.cli.profile_file import Profile, load_profiles, profiles_path, save_profiles


def parser() -> argparse.ArgumentParser:
    """Its subcommands."""
    command = CommandParser(prog="penstock profile", description="Save servers under names, and choose one for all commands.")
    actions = command.add_subparsers(dest="action", required=True, metavar="action")

    def action(name: str, summary: str) -> argparse.ArgumentParser:
        return actions.add_parser(name, help=summary, description=summary[0].upper() + summary[1:] + ".")

    create = action("create", "save a server; the first profile becomes the current one")
    create.add_argument("name", metavar="NAME")
    create.add_argument("--bootstrap", metavar="HOST:PORT", required=True, help="addresses of nodes, separated by commas")
    create.add_argument("--http", metavar="URL", help="the HTTP listener (default: what the node says)")
    create.add_argument("--stream", metavar="HOST:PORT", help="the stream listener (default: what the node says)")
    create.add_argument("--user", metavar="NAME", help="the user to sign in as")
    create.add_argument(
        "--password-file",
        metavar="FILE",
        help="read the password from this file at every command. Without it the password is read from the terminal or "
        "standard input now, and saved in the profile",
    )
    create.add_argument("--tls-ca", metavar="FILE", help="use TLS, and trust the certificates in this PEM file")
    create.add_argument("--replace", action="store_true", help="replace a profile of this name")
    create.add_argument("--use", action="store_true", help="make it the current profile")
    use = action("use", "make a profile the current one, which commands use if no option or variable names a server")
    use.add_argument("name", metavar="NAME")
    listed = action("list", "list profiles; passwords are not shown")
    delete = action("delete", "delete profiles")
    delete.add_argument("names", nargs="+", metavar="NAME")
    for subcommand in (create, use, listed, delete):
        output_options(subcommand.add_argument_group("output"))
    return command


def run(argv: list[str]) -> int:
    """Carry out one subcommand."""
    arguments = parser().parse_args(argv)
    output = Output.of(arguments)
    {"create": _create, "use": _use, "list": _list, "delete": _delete}[arguments.action](arguments, output)
    return ExitCode.OK


def _create(arguments: argparse.Namespace, output: Output) -> None:
    profiles = load_profiles()
    if arguments.name in profiles.by_name and not arguments.replace:
        raise CommandError(f"there is a profile {arguments.name!r} already; add --replace to replace it")
    if arguments.password_file is not None and arguments.user is None:
        raise usage("--password-file needs --user")
    is_asked = arguments.user is not None and arguments.password_file is None
    profiles.by_name[arguments.name] = Profile(
        bootstrap=arguments.bootstrap,
        http=arguments.http,
        stream=arguments.stream,
        user=arguments.user,
        password=_read_password(arguments.user) if is_asked else None,
        password_file=_absolute(arguments.password_file),
        tls_ca=_absolute(arguments.tls_ca),
    )
    if arguments.use or len(profiles.by_name) == 1:
        profiles.current = arguments.name
    save_profiles(profiles)
    is_current = profiles.current == arguments.name
    output.say(f"saved profile {arguments.name} in {profiles_path()}" + ("; it is the current one" if is_current else ""))
    if output.as_json:
        output.document({"name": arguments.name, "current": is_current})


def _use(arguments: argparse.Namespace, output: Output) -> None:
    profiles = load_profiles()
    profile = profiles.named(arguments.name)
    profiles.current = arguments.name
    save_profiles(profiles)
    output.say(f"commands use profile {arguments.name} now ({profile.bootstrap})")
    if output.as_json:
        output.document({"name": arguments.name, "current": True})


def _list(_: argparse.Namespace, output: Output) -> None:
    profiles = load_profiles()
    if output.as_json:
        shown = [
            {"name": name, "current": name == profiles.current, "bootstrap": item.bootstrap, "user": item.user}
            for name, item in sorted(profiles.by_name.items())
        ]
        output.document(shown)
        return
    rows = [
        ("*" if name == profiles.current else "", name, item.bootstrap, item.user, item.tls_ca)
        for name, item in sorted(profiles.by_name.items())
    ]
    output.rows(("current", "name", "bootstrap", "user", "tls ca"), rows)


def _delete(arguments: argparse.Namespace, output: Output) -> None:
    profiles = load_profiles()
    for name in arguments.names:
        profiles.named(name)
    for name in arguments.names:
        profiles.by_name.pop(name, None)
        output.say(f"deleted profile {name}")
    if profiles.current in arguments.names:
        profiles.current = None
    save_profiles(profiles)
    if output.as_json:
        output.document({"deleted": arguments.names})


def _absolute(file: str | None) -> str | None:
    return None if file is None else str(Path(file).absolute())


def _read_password(user: str) -> str:
    password = getpass(f"password of {user}: ") if sys.stdin.isatty() else sys.stdin.readline().rstrip("\r\n")
    if not password:
        raise usage("the password is empty; nothing was saved")
    return password
