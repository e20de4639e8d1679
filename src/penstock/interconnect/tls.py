"""TLS between nodes: each presents a certificate of the cluster's own CA, and files that change are read again by themselves."""

from __future__ import annotations

import logging
import os
import ssl
from dataclasses import dataclass
from pathlib import Path

from penstock.core.errors import ConfigError

log = logging.getLogger(__name__)

_Stamp = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class _Contexts:
    stamp: _Stamp
    server: ssl.SSLContext
    client: ssl.SSLContext


class TlsFiles:
    """Certificate and key of this node, and the CA that signs those of all nodes; the file may hold two CAs while they are
    exchanged. Each new connection uses the files as they are then. Files that cannot be used, for example because one of them is
    not replaced yet, are reported, and those before them stay in use."""

    def __init__(self, certificate: Path, key: Path, authority: Path) -> None:
        self._certificate = certificate
        self._key = key
        self._authority = authority
        self._contexts: _Contexts | None = None
        self._reported: _Stamp | None = None
        self.reloads = 0
        self.failed_reloads = 0

    def server_context(self) -> ssl.SSLContext:
        """To accept connections with; raises ConfigError if there never were usable files."""
        return self._current().server

    def client_context(self) -> ssl.SSLContext:
        """To connect with; raises ConfigError if there never were usable files."""
        return self._current().client

    def _current(self) -> _Contexts:
        known = self._contexts
        try:
            stamp = self._stamp()
            if known is not None and stamp in (known.stamp, self._reported):
                return known
            self._contexts = _Contexts(stamp, self._context(ssl.PROTOCOL_TLS_SERVER), self._context(ssl.PROTOCOL_TLS_CLIENT))
        except (OSError, ssl.SSLError) as error:
            message = (
                f"the TLS files of the interconnect ({self._certificate}, {self._key}, {self._authority}) are of no use: {error}"
            )
            if known is None:
                raise ConfigError(message) from error
            self.failed_reloads += 1
            log.error("%s; those read before stay in use", message)
            if not isinstance(error, FileNotFoundError):
                self._reported = self._stamp()
            return known
        if known is not None:
            self.reloads += 1
            log.info("the TLS files of the interconnect were read again")
        return self._contexts

    def _stamp(self) -> _Stamp:
        stats = (os.stat(path) for path in (self._certificate, self._key, self._authority))
        return tuple((found.st_mtime_ns, found.st_size, found.st_ino) for found in stats)

    def _context(self, protocol: int) -> ssl.SSLContext:
        context = ssl.SSLContext(protocol)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        # The CA signs nodes of this cluster and nothing else; a node may have any name and address.
        context.check_hostname = False
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(self._authority)
        context.load_cert_chain(self._certificate, self._key)
        return context
