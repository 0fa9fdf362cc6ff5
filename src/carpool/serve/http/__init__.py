"""The endpoint: HTTP requests and answers, bounded bodies, and access control.

Handles requests and answers as bytes and as `oip` messages, and asks a `Backend` for the rest.  May import `oip`,
`metrics`, `carpool.protocol` and aiohttp; loads no framework.
"""
