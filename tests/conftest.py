"""Settings that all tests share."""

from __future__ import annotations

from hypothesis import settings

# No example has a time limit of its own: a busy machine is not a fault of the code, and every test has a limit anyway.
settings.register_profile("penstock", deadline=None)
settings.load_profile("penstock")
