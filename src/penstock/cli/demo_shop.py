"""The events of a web shop that does not exist: visitors look at products, put them into carts, and some of them buy."""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random
from typing import Final, NamedTuple

CUSTOMERS: Final = 400
_PAGES_MEAN: Final = 6
_CART_SHARE: Final = 0.3
_ORDER_SHARE: Final = 0.4

_PRODUCTS: Final = (
    ("espresso machine", "kitchen", 24900),
    ("chef's knife", "kitchen", 5990),
    ("cast-iron pan", "kitchen", 4450),
    ("trail shoes", "sport", 11900),
    ("yoga mat", "sport", 2990),
    ("head torch", "sport", 3480),
    ("noise-cancelling headphones", "audio", 27900),
    ("record player", "audio", 18900),
    ("desk lamp", "home", 4990),
    ("wool blanket", "home", 7990),
    ("city atlas", "books", 3200),
    ("crime novel", "books", 1290),
)
_COUNTRIES: Final = ("DE", "DE", "DE", "FR", "FR", "NL", "PL", "ES", "SE", "IT")
_PATHS: Final = {"view": "/product", "cart": "/cart", "order": "/checkout"}


class Event(NamedTuple):
    """One thing that a visitor did. Ids count up from 0, so that anyone can tell whether one is missing."""

    id: int
    kind: str
    customer: str
    product: str
    category: str
    country: str
    cents: int

    def value(self) -> bytes:
        """As it is sent: JSON."""
        fields = {
            "id": self.id,
            "event": self.kind,
            "customer": self.customer,
            "path": f"{_PATHS[self.kind]}/{self.product.replace(' ', '-')}",
            "product": self.product,
            "category": self.category,
            "country": self.country,
            "cents": self.cents,
        }
        return json.dumps(fields, separators=(",", ":")).encode()


def shop_events(random: Random) -> Iterator[Event]:
    """Events without end; those of one customer tell a story, those of many are mixed as they would be."""
    number = 0
    visits = [_visit(random, _customer(random)) for _ in range(20)]
    while True:
        at = random.randrange(len(visits))
        event = next(visits[at], None)
        if event is None:
            visits[at] = _visit(random, _customer(random))
            continue
        kind, customer, (product, category, cents), country = event
        yield Event(number, kind, customer, product, category, country, cents if kind == "order" else 0)
        number += 1


_Step = tuple[str, str, tuple[str, str, int], str]


def _visit(random: Random, customer: str) -> Iterator[_Step]:
    country = _COUNTRIES[int(customer[2:]) % len(_COUNTRIES)]
    cart = []
    for _ in range(1 + int(random.expovariate(1 / _PAGES_MEAN))):
        product = random.choice(_PRODUCTS)
        yield "view", customer, product, country
        if random.random() < _CART_SHARE:
            cart.append(product)
            yield "cart", customer, product, country
    if random.random() < _ORDER_SHARE:
        for product in cart:
            yield "order", customer, product, country


def _customer(random: Random) -> str:
    # Some come again and again.
    return f"c-{int(min(random.expovariate(1 / 80), CUSTOMERS - 1)):04}"
