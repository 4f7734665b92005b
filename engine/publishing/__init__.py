"""The winner of an experiment, in the shapes of the tools that use it, and sent there."""
