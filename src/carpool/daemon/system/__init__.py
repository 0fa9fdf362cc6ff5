"""The operating system as the daemon uses it: clock, processes, futexes, descriptors, background threads.

Knows nothing of jobs; every other folder of the daemon may import it.
"""
