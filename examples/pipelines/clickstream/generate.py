"""Clicks of visitors of a shop: each walks through some pages, thinks, leaves, and may come back; some clicks arrive late.

Prints lines `visitor|{json}` for `penstock produce clicks -K '|'`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from random import Random

BEGIN = datetime(2026, 11, 2, 8, 0, tzinfo=UTC)
PATHS = {
    "/": (["/search", "/offers", "/item"], [5, 3, 4]),
    "/search": (["/item", "/search", "/"], [7, 3, 1]),
    "/offers": (["/item", "/"], [6, 2]),
    "/item": (["/item", "/cart", "/search"], [4, 3, 2]),
    "/cart": (["/checkout", "/item"], [5, 3]),
    "/checkout": (["/thanks", "/cart"], [6, 1]),
    "/thanks": (["/"], [1]),
}
AGENTS = ["Firefox/144", "Chrome/151", "Safari/26", "Edge/151"]
CAMPAIGNS = [None, None, None, "newsletter", "search-ad", "partner"]


def visit(chance: Random, visitor: str, begin: datetime) -> Iterator[tuple[datetime, dict[str, object]]]:
    """One visit: when each click was made, and what it was."""
    at, page = begin, chance.choice(["/", "/item", "/offers"])
    agent, campaign = chance.choice(AGENTS), chance.choice(CAMPAIGNS)
    for _ in range(chance.choices([1, 3, 6, 12], [3, 4, 3, 1])[0]):
        item = chance.randint(1000, 1400) if page == "/item" else None
        yield at, {"visitor": visitor, "at": at.isoformat(), "page": page, "item": item, "agent": agent, "campaign": campaign}
        at += timedelta(seconds=chance.expovariate(1 / 25))
        pages, weights = PATHS[page]
        page = chance.choices(pages, weights)[0]


def clicks(count: int, seed: int) -> list[tuple[str, str]]:
    """Keys and values in the order in which they arrive."""
    chance = Random(seed)
    found: list[tuple[datetime, str, str]] = []
    begin = BEGIN
    while len(found) < count:
        # Most come once; some come again and again.
        visitor = f"v{chance.randrange(20_000) if chance.random() < 0.8 else chance.randrange(50):05}"
        begin += timedelta(seconds=chance.expovariate(1 / 4))
        for at, click in visit(chance, visitor, begin):
            late = timedelta(seconds=chance.expovariate(1 / 40)) if chance.random() < 0.05 else timedelta()
            value = json.dumps(click)
            # A browser that was closed while it sent.
            value = value[: len(value) // 2] if chance.random() < 0.001 else value
            found.append((at + late, visitor, value))
    return [(visitor, value) for _, visitor, value in sorted(found)[:count]]


def main() -> None:
    """Print clicks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20_000, help="how many clicks")
    parser.add_argument("--seed", type=int, default=1, help="the same seed gives the same clicks")
    options = parser.parse_args()
    sys.stdout.writelines(f"{visitor}|{value}\n" for visitor, value in clicks(options.count, options.seed))


if __name__ == "__main__":
    main()
