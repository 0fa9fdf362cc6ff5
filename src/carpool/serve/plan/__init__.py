"""What is served and how weights are laid out and grouped.

Pure; may import `oip` only.
"""
