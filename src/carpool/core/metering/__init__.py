"""What the core measures: use of devices, who ran beside whom, what a transfer costs, and the views that policies see.

It reads the state and changes only its counters; it decides nothing.
"""
