"""The author of commits."""

import re
from dataclasses import dataclass

_AUTHOR = re.compile(r"(?P<name>[^<>\x00-\x1f]*[^<>\x00-\x1f\s]) *<(?P<email>[^<>\x00-\x1f\s]+)>")
_CRUD = re.compile(r"^[\s.,:;\"\\']+|[\s.,:;\"\\']+$")
"""Git removes these characters from both ends of a name."""


@dataclass(frozen=True, kw_only=True)
class Author:
    """Name and email address, without the characters that git removes."""

    name: str
    email: str

    def __str__(self) -> str:
        return f"{self.name} <{self.email}>"


def parse_author(text: str) -> Author:
    """Parse `Name <email>`.

    Raises:
        ValueError: it does not have this form, or a part is empty.
    """
    found = _AUTHOR.fullmatch(text.strip())
    if found is None or not (name := _CRUD.sub("", found["name"])):
        raise ValueError("an author has the form 'Name <email>'")
    return Author(name=name, email=found["email"])
