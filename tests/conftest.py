"""Settings that all tests share."""

from __future__ import annotations

import os

from hypothesis import settings

# Nodes of tests would all want the same port for HTTP; those that are to have it say --http-port 0.
os.environ["PENSTOCK_HTTP_PORT"] = "none"

# No example has a time limit of its own: a busy machine is not a fault of the code, and every test has a limit anyway.
settings.register_profile("penstock", deadline=None)
settings.load_profile("penstock")
