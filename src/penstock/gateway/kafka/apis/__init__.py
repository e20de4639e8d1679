"""The apis that are served, a module an area. Each takes a call and its message, and gives the message to answer with."""
