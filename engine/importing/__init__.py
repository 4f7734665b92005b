"""Reading what people bring along: tasks, gold items, ready-made responses, whole experiments.

Pure parsing without the database. An error names every fault with its place, all at once.
"""
