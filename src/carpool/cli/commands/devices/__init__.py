"""Commands about devices: what they do, what they have done, and taking them out of use."""
