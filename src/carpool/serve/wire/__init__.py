"""Messages between the front and the processes of models, and the channel that carries them.

Both ends import it, so standard library only.  May import `plan`, `oip.values`, `oip.errors` and
`carpool.protocol.records`.
"""
