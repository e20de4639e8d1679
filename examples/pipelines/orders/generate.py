"""Orders of shops in several countries, over two days, busier in the evening.

Prints lines `order|{json}` for `penstock produce orders -K '|'`; with --rates FILE also writes the table of exchange rates.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

BEGIN = datetime(2026, 11, 2, tzinfo=UTC)
SHOPS = {"Berlin": "EUR", "Zurich": "CHF", "London": "GBP", "Oslo": "NOK", "Porto": "EUR"}
RATES = {"EUR": 1.0, "CHF": 1.07, "GBP": 1.14, "NOK": 0.085}
ITEMS = {"espresso": 3.2, "beans 1 kg": 24.9, "grinder": 189.0, "cup": 12.5, "filter": 7.9}


def orders(count: int, seed: int) -> list[dict[str, object]]:
    """Orders in the order of time."""
    chance = Random(seed)
    at = BEGIN
    found: list[dict[str, object]] = []
    for number in range(count):
        busy = 1.2 + math.sin((at.hour - 12) / 24 * 2 * math.pi)
        at += timedelta(seconds=chance.expovariate(busy * count / 172_800))
        shop = chance.choice(list(SHOPS))
        items = chance.choices(list(ITEMS), [9, 4, 1, 3, 5], k=chance.choice([1, 1, 2, 3]))
        cents = sum(round(ITEMS[item] * 100 / RATES[SHOPS[shop]]) for item in items)
        found.append(
            {
                "order": f"{BEGIN:%y%m}-{number:07}",
                "at": at.isoformat(),
                "shop": shop,
                "currency": SHOPS[shop],
                "items": items,
                "cents": cents,
            }
        )
    return found


def totals(found: list[dict[str, object]]) -> dict[tuple[str, str], tuple[int, int]]:
    """What the pipeline must come to: orders and cents, in the shop's money, by shop and hour."""
    sums: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for order in found:
        hour = datetime.fromisoformat(str(order["at"])).strftime("%Y-%m-%dT%H")
        of_hour = sums[str(order["shop"]), hour]
        of_hour[0] += 1
        of_hour[1] += int(str(order["cents"]))
    return {key: (count, cents) for key, (count, cents) in sums.items()}


def write_rates(path: Path) -> None:
    """The table that orders are joined with."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"currency": list(RATES), "euros": list(RATES.values())}), path)


def main() -> None:
    """Print orders."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20_000, help="how many orders")
    parser.add_argument("--seed", type=int, default=1, help="the same seed gives the same orders")
    parser.add_argument("--rates", type=Path, help="write the exchange rates to this Parquet file")
    options = parser.parse_args()
    if options.rates is not None:
        write_rates(options.rates)
    sys.stdout.writelines(f"{order['order']}|{json.dumps(order)}\n" for order in orders(options.count, options.seed))


if __name__ == "__main__":
    main()
