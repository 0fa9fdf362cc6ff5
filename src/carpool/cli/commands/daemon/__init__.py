"""Commands about the daemon: starting and stopping it, its settings, its log and its journal."""
