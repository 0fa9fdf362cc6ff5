"""Metrics for Prometheus.

`event_counts` counts what the core is told and decides, `present` looks up the present state when a scrape asks, and
`page` combines both with figures of the daemon itself.  No label names a job or a user, and the values of each label
are bounded: devices, and words from the code.
"""
