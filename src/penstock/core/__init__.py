"""Ground under all layers: errors, clock, checksums, codecs. Imports nothing of ours."""
