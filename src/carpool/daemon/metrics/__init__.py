"""Metrics for Prometheus: `event_counts` counts what the core is told and decides, `present` looks up what is now when
a scrape asks, `page` has both, and what the daemon itself does.  No label names a job or a user, and the values of each
are bounded: devices, and what the code has words for.
"""
