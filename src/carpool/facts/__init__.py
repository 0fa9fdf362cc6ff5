"""Facts: the one fold of the event stream into turns, waits, requests, moves and memory.

Pure: no clock, no I/O.  Only this package matches on names of events about turns.  It may import the core's vocabulary
and the protocol; the daemon, the command line, the page, timelines, the demo and the benchmarks import it.
"""
