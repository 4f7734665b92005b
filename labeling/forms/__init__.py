"""Forms that are more than a view's own few fields."""
