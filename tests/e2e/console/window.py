"""A window of the browser that notes errors and requests to other hosts, and fails the test that leaves any."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from playwright.sync_api import Browser, ConsoleMessage, Page, Request

ROOT = Path(__file__).resolve().parents[3]
PICTURES = ROOT / ".artifacts" / "console"
WAIT_MS = 15_000
DESK = (1280, 800)
PHONE = (390, 780)

Theme = Literal["light", "dark"]


class Window:
    """One page at the console."""

    def __init__(self, page: Page, base: str) -> None:
        self.page = page
        self.base = base
        self.errors: list[str] = []
        self.foreign: list[str] = []
        page.set_default_timeout(WAIT_MS)
        page.on("console", self._on_console)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", self._on_request)

    def open(self, path: str) -> None:
        """Go to a path as if it was typed in, and wait for the frame."""
        self.page.goto(self.base + path)
        self.page.wait_for_selector("main h1")

    def see(self, text: str) -> None:
        """Wait until a text can be seen."""
        self.page.get_by_text(text).first.wait_for()

    def until(self, condition: str) -> None:
        """Wait until an expression holds in the page. As a function: the page's policy forbids to evaluate strings."""
        self.page.wait_for_function(f"() => ({condition})")

    def picture(self, name: str) -> None:
        """Keep a picture for people to look at."""
        PICTURES.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=PICTURES / f"{name}.png")

    @property
    def path(self) -> str:
        """What the address bar shows after the host."""
        return self.page.url.removeprefix(self.base)

    def forgive(self, part: str) -> None:
        """An error that was meant to happen."""
        self.errors = [error for error in self.errors if part not in error]

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.errors.append(f"{message.text} ({message.location.get('url', '')})")

    def _on_request(self, request: Request) -> None:
        if not request.url.startswith(self.base + "/"):
            self.foreign.append(request.url)


@contextmanager
def opened_window(
    browser: Browser, base: str, *, size: tuple[int, int] = DESK, theme: Theme = "light", **more: Any
) -> Iterator[Window]:
    """A window with nothing remembered. What went wrong in it fails the test at the end."""
    context = browser.new_context(viewport={"width": size[0], "height": size[1]}, color_scheme=theme, **more)
    window = Window(context.new_page(), base)
    try:
        yield window
        assert not window.errors, f"the console has complained: {window.errors}"
        assert not window.foreign, f"a request left the host: {window.foreign}"
    finally:
        context.close()
