"""The pure core: a state machine that decides where jobs are placed, which compute, and whose bytes stay.

Nothing in this package does I/O, reads a clock, starts a thread or logs.  Two drivers run it: the daemon (real time,
real jobs) and the simulator (virtual time, modelled jobs).
"""
