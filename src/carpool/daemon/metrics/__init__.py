"""Metrics for Prometheus.

`present` looks up the present state when a scrape asks; `page` combines it with counts of what the core is told and
decides, and of the daemon itself.  No label names a job or a user, and the values of each label are bounded: devices,
and words from the code.
"""
