"""The HTTP API over the Unix socket: one module per group of requests, one table of routes.

Imports every room that has something to show or to change (`jobs`, `journal`, `config`, `seats`,
`telemetry`); only `app` imports it.
"""
