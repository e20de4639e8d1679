"""Benchmarks: each figure stands beside a raw loop or a limit measured in the same run, and beside its goal."""
