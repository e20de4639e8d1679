"""Tables that pipelines write: Delta, Iceberg and Parquet, each with the offsets of a topic in its own commit."""
