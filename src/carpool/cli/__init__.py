"""The command line: one file per command; loads neither a framework nor an event loop.

Every command starts in `main`, which imports only the module of the command that was typed.  The rooms, from top to
bottom, each importing only those below: `commands`; `request` and `simulation`; `base`; `render`.  The daemon is
reached through `carpool.protocol.client` only; only `simulation` imports the simulator.
"""
