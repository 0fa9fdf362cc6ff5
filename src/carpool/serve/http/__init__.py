"""The endpoint: HTTP in and out, access, metrics.

The top floor of the front; may import every other room of `serve` that loads no framework.
"""
