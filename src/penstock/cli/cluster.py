"""`penstock cluster`: creates a cluster in etcd, and shows what etcd holds of it."""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.cli.exit_codes import ExitCode
from penstock.cli.failure import CommandError, usage
from penstock.cli.output import Output

if TYPE_CHECKING:
    from penstock.coordination import ClusterIdentity, Coordination, EtcdOptions

    _Action = Callable[[Coordination, argparse.Namespace, Output], Awaitable[None]]

ETCD_VARIABLE: Final = "PENSTOCK_ETCD"
PASSWORD_VARIABLE: Final = "PENSTOCK_ETCD_PASSWORD"
KINDS: Final = ("mirror-3", "block-4-2", "mirror-3-dc")


def parser() -> argparse.ArgumentParser:
    """Its subcommands."""
    command = argparse.ArgumentParser(prog="penstock cluster", description="Create a cluster in etcd, and show it.")
    actions = command.add_subparsers(dest="action", required=True, metavar="action")
    parent = etcd_options()
    init = actions.add_parser(
        "init",
        help="create a cluster, unless it exists",
        description="Create a cluster: its id, its name and the kind of its storage groups. Run it once: where the cluster "
        "exists with the same kind, it changes nothing and shows that.",
        parents=[parent],
    )
    init.add_argument("--kind", choices=KINDS, default=KINDS[0], help=f"the kind of its storage groups (default: {KINDS[0]})")
    actions.add_parser(
        "show",
        help="show the identity, the leader and the members of a cluster",
        description="Show the identity, the leader and the members of a cluster, as etcd has them.",
        parents=[parent],
    )
    return command


def etcd_options() -> argparse.ArgumentParser:
    """A parent parser with where etcd is and how to sign in to it."""
    parent = argparse.ArgumentParser(add_help=False)
    group = parent.add_argument_group("etcd and output")
    group.add_argument(
        "--etcd",
        metavar="URL,URL",
        default=None,
        help=f"the endpoints of etcd, all http:// or all https:// (default: {ETCD_VARIABLE}). "
        "Needs the extra: pip install 'penstock[cluster]'",
    )
    group.add_argument("--name", metavar="NAME", required=True, help="the name of the cluster; several can share one etcd")
    group.add_argument(
        "--etcd-ca", metavar="FILE", type=Path, default=None, help="the CA of etcd's certificates (default: the system's)"
    )
    group.add_argument("--etcd-cert", metavar="FILE", type=Path, default=None, help="a client certificate, if etcd requires one")
    group.add_argument("--etcd-key", metavar="FILE", type=Path, default=None, help="the key of the client certificate")
    group.add_argument(
        "--etcd-user",
        metavar="NAME",
        default="",
        help=f"the user to sign in to etcd as; the password is taken from {PASSWORD_VARIABLE} or a file (default: none)",
    )
    group.add_argument("--etcd-password-file", metavar="FILE", type=Path, default=None, help="a file that contains the password")
    group.add_argument("-o", "--output", choices=("text", "json"), default="text", help="output format (default: text)")
    return parent


def run(argv: list[str]) -> int:
    """Carry out one subcommand."""
    arguments = parser().parse_args(argv)
    from penstock.coordination import CoordinationUnavailableError

    output = Output(as_json=arguments.output == "json")
    action = _init if arguments.action == "init" else _show
    try:
        asyncio.run(_connected(action, arguments, output))
    except CoordinationUnavailableError as error:
        raise CommandError(str(error), ExitCode.NO_CONNECTION) from error
    return ExitCode.OK


def make_etcd_options(arguments: argparse.Namespace) -> EtcdOptions:
    """The options that the arguments describe."""
    from penstock.coordination import EtcdOptions, cluster_prefix
    from penstock.core.errors import ConfigError, InvalidRequestError

    endpoints = arguments.etcd or os.environ.get(ETCD_VARIABLE, "")
    if not endpoints:
        raise usage(f"where etcd is must be told: --etcd http://HOST:2379, or {ETCD_VARIABLE}")
    try:
        return EtcdOptions(
            tuple(endpoint.strip() for endpoint in endpoints.split(",")),
            cluster_prefix(arguments.name),
            ca_file=arguments.etcd_ca,
            cert_file=arguments.etcd_cert,
            key_file=arguments.etcd_key,
            user=arguments.etcd_user,
            password=_password(arguments) if arguments.etcd_user else "",
        )
    except (ConfigError, InvalidRequestError) as error:
        raise usage(str(error)) from error


def _password(arguments: argparse.Namespace) -> str:
    file: Path | None = arguments.etcd_password_file
    if file is None:
        return os.environ.get(PASSWORD_VARIABLE, "")
    try:
        return file.read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise usage(f"--etcd-password-file: {file} cannot be read: {error}") from error


async def _connected(action: _Action, arguments: argparse.Namespace, output: Output) -> None:
    from penstock.coordination import Coordination, connect_etcd

    coordination = Coordination(connect_etcd(make_etcd_options(arguments), random.Random()))
    try:
        await action(coordination, arguments, output)
    finally:
        await coordination.close()


async def _init(coordination: Coordination, arguments: argparse.Namespace, output: Output) -> None:
    from penstock.coordination import ClusterIdentity

    wanted = ClusterIdentity(cluster_id=str(uuid.uuid4()), name=arguments.name, kind=arguments.kind)
    identity = await coordination.create_cluster(wanted)
    is_new = identity.cluster_id == wanted.cluster_id
    if output.as_json:
        output.document({**_identity_fields(identity), "created": is_new})
    output.say(
        f"cluster {identity.name} {'created' if is_new else 'exists, nothing was changed'}: id {identity.cluster_id},"
        f" storage groups of kind {identity.kind}"
    )


async def _show(coordination: Coordination, _: argparse.Namespace, output: Output) -> None:
    identity = await coordination.open()
    leader, members = coordination.leader, coordination.members()
    leader_id = leader.record.node_id if leader is not None else None
    if output.as_json:
        described = [
            {"node": member.node_id, "name": member.name, "addresses": member.addresses, "rack": member.rack}
            for member in members
        ]
        output.document({**_identity_fields(identity), "leader": leader_id, "members": described})
        return
    output.line(
        f"cluster {identity.name}: id {identity.cluster_id}, kind {identity.kind}, feature level {identity.feature_level}"
    )
    if not members:
        output.line("no node is running")
        return
    output.rows(
        ("node", "name", "rack", "leads", "addresses"),
        [
            (
                member.node_id,
                member.name,
                member.rack,
                "yes" if member.node_id == leader_id else "",
                " ".join(f"{kind}={address}" for kind, address in sorted(member.addresses.items())),
            )
            for member in members
        ],
    )


def _identity_fields(identity: ClusterIdentity) -> dict[str, object]:
    return {
        "cluster_id": identity.cluster_id,
        "name": identity.name,
        "kind": identity.kind,
        "feature_level": identity.feature_level,
    }
