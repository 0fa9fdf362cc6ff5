"""Removal of jobs that ended long ago: rows of the journal, directories, and what the daemon keeps in memory.

Imports `journal`, `config`, `jobs` and `system`.
"""
