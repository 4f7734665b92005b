"""Programs for the people who work on this project; the application imports none of them."""
