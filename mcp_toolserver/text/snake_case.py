"""Names in other spellings."""

import re


def snake_case(name: str) -> str:
    """`filePath` → `file_path`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
