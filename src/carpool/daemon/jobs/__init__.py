"""What is known of each live job: the table, the board with the seats, files, and state that several rooms share.

Imports `privileges` and `system` only: every room that deals with jobs stands on this one.
"""
