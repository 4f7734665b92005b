"""Asks the models of vendors and other servers through connections."""
