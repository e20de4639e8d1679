"""The settings of a node that is one of several: the etcd they share, and how nodes reach and trust each other."""

from __future__ import annotations

from typing import Final

from penstock.server.kinds import FILE, FLAG, NAME, PORT, SECRET, URLS, USER, or_none
from penstock.server.setting import Setting

ETCD_SETTINGS: Final = (
    Setting(
        "etcd",
        or_none(URLS),
        "none",
        "the endpoints of etcd, all http:// or all https://, separated by commas. With it this node is one of a cluster, which "
        "`penstock cluster init` created under cluster_name. Needs the extra: pip install 'penstock[cluster]'",
    ),
    Setting("etcd_ca", FILE, "none", "a PEM file with the CA of etcd's certificates; none is those of the system"),
    Setting("etcd_cert", FILE, "none", "a PEM file with a client certificate, if etcd requires one"),
    Setting("etcd_key", FILE, "none", "a PEM file with the private key of etcd_cert"),
    Setting("etcd_user", USER, "none", "the user to sign in to etcd as; needs etcd_password or etcd_password_file"),
    Setting("etcd_password", SECRET, "none", "the password of etcd_user. It has no command-line option"),
    Setting("etcd_password_file", FILE, "none", "a file that contains etcd_password"),
)

CLUSTER_SETTINGS: Final = (
    *ETCD_SETTINGS,
    Setting(
        "node_name", or_none(NAME), "none", "the name of this node in its cluster, unlike all others; none is this machine's name"
    ),
    Setting(
        "replaces_node",
        FLAG,
        "false",
        "take over the id of the node of this name, whose data directory is lost and which does not run; its disks are refilled "
        "from the others. Set it for one start only",
    ),
    Setting("interconnect_port", PORT, "9190", "the port for other nodes of the cluster, with etcd only; 0 picks a free one"),
    Setting(
        "interconnect_ca",
        FILE,
        "none",
        "a PEM file with the CA that signs the certificates of this cluster's nodes and nothing else; without it nodes speak "
        "plaintext, on the loopback interface only",
    ),
    Setting("interconnect_cert", FILE, "none", "a PEM file with the certificate of this node for other nodes"),
    Setting("interconnect_key", FILE, "none", "a PEM file with the private key of interconnect_cert"),
    Setting("rack", or_none(NAME), "none", "what fails together with this node: no two disks of a storage group share a rack"),
    Setting("datacenter", or_none(NAME), "none", "the datacenter of this node; mirror-3-dc groups spread over three"),
)
