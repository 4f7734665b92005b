"""Places from which tasks come: files, the Hugging Face hub, other tools, and those of other packages."""
