"""Timelines: the events of a daemon as tracks, for Perfetto and for Chrome's format.

Input: the daemon's events and traces of `torch.profiler`; `carpool timeline` is the only importer.  May import the
protocol.  `perfetto_file` needs the package perfetto (the extra ``timeline``), so it is loaded on use only.
"""
