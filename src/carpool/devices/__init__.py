"""Devices whose memory is granted and revoked.  `base` is the protocol, one module per kind implements it."""
