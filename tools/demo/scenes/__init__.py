"""The scenes of the demo.  Each runs jobs twice, each time under a daemon of its own, and gives what it measured."""
