"""Readings of sensors at several sites, one every ten seconds a device; a newer firmware sends the humidity as well.

Prints lines `device|{json}` for `penstock produce telemetry -K '|'`.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from datetime import UTC, datetime, timedelta
from random import Random

BEGIN = datetime(2026, 11, 1, 18, 0, tzinfo=UTC)
SITES = {"harbour": 9.0, "roof": 6.5, "cellar": 14.0}
DEVICES_A_SITE = 8


def readings(count: int, seed: int) -> list[tuple[str, dict[str, object]]]:
    """Devices with their readings, in the order of time."""
    chance = Random(seed)
    devices = [(site, f"{site}-{number:02}") for site in SITES for number in range(DEVICES_A_SITE)]
    battery = {device: chance.uniform(60, 100) for _, device in devices}
    newer = {device for _, device in devices if chance.random() < 0.3}
    found: list[tuple[str, dict[str, object]]] = []
    for number in range(count):
        site, device = devices[number % len(devices)]
        at = BEGIN + timedelta(seconds=number // len(devices) * 10 + chance.uniform(0, 3))
        battery[device] -= 0.0005
        day = math.sin((at.hour + at.minute / 60 - 9) / 24 * 2 * math.pi)
        reading: dict[str, object] = {
            "device": device,
            "site": site,
            "at": at.isoformat(timespec="milliseconds"),
            "celsius": round(SITES[site] + 4 * day * (site != "cellar") + chance.gauss(0, 0.2), 2),
            "battery": round(battery[device], 1),
            "sequence": number // len(devices),
        }
        if device in newer:
            reading["humidity"] = round(62 - 8 * day + chance.gauss(0, 1), 1)
        found.append((device, reading))
    return found


def main() -> None:
    """Print readings."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=50_000, help="how many readings")
    parser.add_argument("--seed", type=int, default=1, help="the same seed gives the same readings")
    options = parser.parse_args()
    sys.stdout.writelines(f"{device}|{json.dumps(reading)}\n" for device, reading in readings(options.count, options.seed))


if __name__ == "__main__":
    main()
