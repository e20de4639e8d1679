"""Gateways: the network protocols by which clients reach the broker."""
