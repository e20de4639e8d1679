"""Ground under all layers: errors, clock, checksums. Imports nothing of ours."""
