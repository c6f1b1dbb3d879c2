"""What language servers know of the code: definitions, uses, types, problems."""
