"""Deletes files of an Iceberg table that no snapshot refers to: pyiceberg expires snapshots, but leaves their files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.spark.tables.files import FileStore

if TYPE_CHECKING:
    from pyiceberg.table import Table


def remove_orphans(table: Table, store: FileStore, before_ms: int) -> int:
    """Delete files older than a time that are in no snapshot. Returns their number."""
    kept = _named(table)
    root = table.location().rstrip("/") + "/"
    old = [
        entry.path
        for folder in ("data/", "metadata/")
        for entry in store.list(folder)
        if entry.modified_ms < before_ms and f"{root}{entry.path}" not in kept
    ]
    store.delete(old)
    return len(old)


def _named(table: Table) -> set[str]:
    metadata = table.metadata
    kept = {table.metadata_location, *(snapshot.metadata_file for snapshot in metadata.metadata_log)}
    for snapshot in metadata.snapshots:
        kept.add(snapshot.manifest_list)
        for manifest in snapshot.manifests(table.io):
            kept.add(manifest.manifest_path)
            kept.update(entry.data_file.file_path for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True))
    kept.update(statistics.statistics_path for statistics in metadata.statistics)
    return kept
