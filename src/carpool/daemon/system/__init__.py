"""What the daemon asks of the operating system: clock, processes, futexes, descriptors, background threads.

Knows nothing of jobs; every other room of the daemon may import it.
"""
