"""The endpoint: HTTP in and out, compressed bodies, and who may ask.

Knows requests and answers as bytes and as `oip` messages, and asks a `Backend` for the rest.  May import `oip`,
`metrics`, `carpool.protocol` and aiohttp; loads no framework.
"""
