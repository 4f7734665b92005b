"""The forms of the pages on which an experiment is set up."""
