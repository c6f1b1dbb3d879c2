"""What the calls of a tool may touch at most, as the author of the tool declares it."""

import re
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

VARIABLES = ("workspace", "ad-hoc", "user-data")
VARIABLE = re.compile(r"\{([\w-]+)\}")


def _defined(pattern: str) -> str:
    if unknown := sorted({*VARIABLE.findall(pattern)} - {*VARIABLES}):
        raise ValueError(f"{unknown[0]} is undefined; there are {', '.join(VARIABLES)}")
    if not pattern.startswith(("/", "{")):
        raise ValueError(f"{pattern} must begin with / or a variable")
    return pattern


PathPattern = Annotated[str, AfterValidator(_defined)]
"""A glob on absolute paths. `{workspace}` stands for each root, `{ad-hoc}` for the `/tmp` of a session, and
`{user-data}` for nothing; one alone means all that lies there."""


class _Declared(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ArgPattern(_Declared):
    """One argument: with `wildcard` any that is no option, with `prefix` any that begins like this."""

    wildcard: bool = False
    prefix: str = ""

    def fits(self, word: str) -> bool:
        """Whether it stands for this argument."""
        if self.wildcard and word.startswith("-"):
            return False
        return (self.wildcard or self.prefix != "") and word.startswith(self.prefix)


class ShellRequirement(_Declared):
    """A command with all its arguments in their order; a text is exactly one argument."""

    cmd: str = Field(min_length=1)
    args: tuple[str | ArgPattern, ...] = ()


class RequirementSet(_Declared):
    """All that calls may touch: what is not listed they may not."""

    fs: Mapping[Literal["read", "write"], tuple[PathPattern, ...]] = {}
    net: Mapping[Literal["hosts"], tuple[str, ...]] = {}
    """Hosts as in rules: `example.com`, `*.example.com`."""
    shell: tuple[ShellRequirement, ...] = ()
    capabilities: tuple[str, ...] = ()
    """Capabilities besides those for files, the web and commands, by their names in rules."""
