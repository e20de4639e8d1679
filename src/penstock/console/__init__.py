"""The web console: static pages that talk to the admin API of the node that serves them."""

from __future__ import annotations

from penstock.console.assets import PAGES, is_built, mount

__all__ = ["PAGES", "is_built", "mount"]
