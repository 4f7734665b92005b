"""Judges that are not people."""
