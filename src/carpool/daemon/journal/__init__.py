"""The durable record in SQLite: jobs, events, history, controls, models.

Written before anything is acknowledged.  Imports `config`, `jobs` and `system`; knows no process.
"""
