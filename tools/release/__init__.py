"""Releases: archives built from a tag, what is in them, and a signature.  Nothing here uploads anything.

docs/releases.md says how a release is made and how others verify one.  Runs in an environment of its own
(``requirements/release.lock``), and imports nothing of Carpool.
"""
