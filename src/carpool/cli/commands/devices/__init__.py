"""Commands about devices: their present state, their use by users, and taking them out of use."""
