"""The Spark source side by side with Spark's own Kafka connector, and with a source that has its rows ready."""
