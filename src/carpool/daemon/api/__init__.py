"""The HTTP API over the Unix socket: one module per group of requests, one table of routes."""
