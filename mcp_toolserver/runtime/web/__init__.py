"""Reading from the web, with a guard on every address."""
