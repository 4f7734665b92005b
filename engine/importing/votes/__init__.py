"""Past votes: a module for each format, those that they share, and ``reading``, which tells them apart."""
