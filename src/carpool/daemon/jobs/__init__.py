"""Records of live jobs: the job table, seat tables, files, and state that several folders share.

Imports `privileges` and `system` only; every folder that deals with jobs builds on this one.
"""
