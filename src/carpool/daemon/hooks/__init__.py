"""Features of the daemon that take part in the life of jobs: one file for each, registered in `hooks.registry`.

Imports `journal`, `config`, `cgroups`, `jobs`, `privileges` and `system`.
"""
