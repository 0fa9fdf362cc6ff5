"""What is removed of jobs that ended long ago: rows of the journal, directories, and what the daemon knows of them.

Imports `journal`, `config`, `jobs` and `system`.
"""
