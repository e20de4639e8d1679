"""The store of a cluster: etcd 3.4 or later. Needs the extra `cluster`, which is imported when a store is connected."""

from __future__ import annotations

import random
from collections.abc import Callable

from penstock.coordination.etcd.options import EtcdOptions
from penstock.coordination.port import KeyStore
from penstock.core.clock import boot_time
from penstock.core.errors import ConfigError

__all__ = ["EtcdOptions", "connect_etcd"]


def connect_etcd(options: EtcdOptions, rng: random.Random, now: Callable[[], float] = boot_time) -> KeyStore:
    """A store on etcd; connections are made when it is used."""
    try:
        from penstock.coordination.etcd.store import EtcdStore
    except ImportError as error:
        raise ConfigError(f"etcd needs {error.name}, which is not installed: pip install 'penstock[cluster]'") from error
    return EtcdStore(options, now, rng)
