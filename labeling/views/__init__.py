"""Views parse, call a service or selector, and render."""
