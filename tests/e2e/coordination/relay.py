"""A relay between a client and a server that loses what goes one way or both, without closing a connection."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

PIECE_BYTES = 64 << 10


class Relay:
    """Listens on a port of its own. What is lost stays lost: a connection that lost bytes is closed when the relay is mended."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        self._target = (parts.hostname, parts.port)
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self.loses_requests = False
        self.loses_answers = False
        self.url = ""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._relay, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._server is not None
        self._server.close()
        self._close_all()

    def mend(self) -> None:
        """Let everything through again; clients connect again."""
        self.loses_requests = self.loses_answers = False
        self._close_all()

    def _close_all(self) -> None:
        for writer in self._writers:
            writer.close()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        target_reader, target_writer = await asyncio.open_connection(*self._target)
        self._writers |= {writer, target_writer}
        await asyncio.gather(
            self._pass(reader, target_writer, is_request=True), self._pass(target_reader, writer, is_request=False)
        )
        self._writers -= {writer, target_writer}

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_request: bool) -> None:
        try:
            while piece := await reader.read(PIECE_BYTES):
                if not (self.loses_requests if is_request else self.loses_answers):
                    writer.write(piece)
        except ConnectionError:
            pass
        writer.close()
