"""Five training jobs one by one, and together on one host device under each policy."""
