"""One setting of a node, with its names in the file, the environment and the command line."""

from __future__ import annotations

from typing import Final, NamedTuple

from penstock.server.kinds import PATHS, PEERS, SECRET, Kind

ENVIRONMENT_PREFIX: Final = "PENSTOCK_"


class Setting(NamedTuple):
    """One setting: its key in the file, the kind of its values, its default as documented, and its description."""

    key: str
    kind: Kind
    default: str
    doc: str

    @property
    def variable(self) -> str:
        """Its name in the environment."""
        return ENVIRONMENT_PREFIX + self.key.upper()

    @property
    def is_list(self) -> bool:
        """Whether its option is given once for each item."""
        return self.kind in (PATHS, PEERS)

    @property
    def is_secret(self) -> bool:
        """Whether it has no option: what is on a command line, everyone on the machine can read."""
        return self.kind is SECRET

    @property
    def metavar(self) -> str:
        """What stands for its value in a usage line."""
        return self.kind.metavar

    @property
    def option(self) -> str:
        """Its name on the command line."""
        singular = {PATHS: "disk", PEERS: "peer-cluster"}.get(self.kind, self.key)
        return "--" + singular.replace("_", "-")
