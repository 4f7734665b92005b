"""What leaves the site as a file, and how it is read back."""
