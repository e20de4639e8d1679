"""Penstock: a persistent queue that never loses what it acknowledged."""

# A constant, since looking up installed metadata costs imports at every start of the command. The build reads it from here.
__version__ = "0.1.0.dev0"

__all__ = ["__version__"]
