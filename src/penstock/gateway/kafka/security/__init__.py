"""Who a client is, and what it may do. None of it runs unless the node is started with security on."""
