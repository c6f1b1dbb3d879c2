"""Lines of text: encodings, pages, truncation."""
