"""Several workers on one machine: processes that serve topics, started and restarted by a supervisor."""
