"""Timelines: the events of a daemon as tracks, in Chrome's format, which Perfetto opens.

Input: the daemon's events and traces of `torch.profiler`; `carpool timeline` is the only importer.  May import the
protocol and facts.
"""
