"""What crosses a process boundary: the HTTP API's messages, the session messages, seats and packets."""
