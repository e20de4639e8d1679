"""The Kafka protocol and a client of it, below the broker: the gateway, the command line, Spark and tests share them."""
