"""What every command needs: common options, exit codes, errors, starting the daemon.

May import the protocol only.
"""
