"""A model in memory: its structure, weights, profile, and how it is called.

Parts of it load PyTorch and run in workers and preparers only.
"""
