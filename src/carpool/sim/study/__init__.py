"""Studies: many simulations of one thing, of which each figure gets a mean and a range.

A study simulates each policy, under each load, with each seed.  The seeds are a generator's, or those of replicas.  No
simulation depends on another, so they may run side by side, in processes.
"""
