"""The durable record in SQLite: jobs, events, history, controls, models.

Written before anything is acknowledged; knows no process and no device.
"""
