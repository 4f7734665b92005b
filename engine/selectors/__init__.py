"""The read side, a module per subject: import the module. Nothing here writes."""
