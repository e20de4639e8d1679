"""Penstock side by side with a real single-node Apache Kafka: the same clients, the same disk, the same run."""
