"""Find files by name pattern and return their paths, newest first. Skips symbolic links, dot files and files
excluded by .gitignore.
"""

from collections.abc import Iterator
from dataclasses import replace

from mcp_toolserver.text.search.glob import listed, matcher, rooted
from mcp_toolserver.text.search.notes import nothing, unsearched
from mcp_toolserver.tool import (
    Alias,
    Args,
    CanonicalPath,
    Capability,
    Field,
    FileQuery,
    FoundFiles,
    Output,
    Permission,
    Profile,
    Runtime,
    ToolSpec,
    WorkspacePath,
    model_validator,
)

_ENTRIES = 1_000
_FOLDERS = 100
_SWITCHES = {"hidden": "dot files", "include_ignored": "what .gitignore lists"}


class GlobSearch(Args):
    pattern: str = Field(
        min_length=1, description="Glob such as `src/**/*.{ts,js}`; without `/` it matches at any depth"
    )
    path: WorkspacePath = Field(
        default=CanonicalPath("."), description="Folder to search; default: the first root"
    )
    hidden: bool = Field(default=False, description="Include dot files")
    include_ignored: bool = Field(default=False, description="Include files excluded by .gitignore")

    @model_validator(mode="before")
    @classmethod
    def _from_its_folder(cls, given: dict[str, object]) -> dict[str, object]:
        """An absolute pattern names its folder, which rules and roots must see as the path."""
        pattern = given.get("pattern")
        if not isinstance(pattern, str) or not pattern.startswith("/"):
            return given
        folder, rest = rooted(pattern)
        return {**given, "path": folder, "pattern": rest}


async def run(args: GlobSearch, rt: Runtime) -> Output:
    query = FileQuery(
        pattern=listed(args.pattern),
        path=args.path,
        hidden=args.hidden,
        ignored=args.include_ignored,
        limit=_ENTRIES,
    )
    found = await rt.search.files(query)
    if not found.files and (folders := await _folders(query, rt)):
        return Output("\n".join(("No file matches, but these folders do:", *folders)))
    is_cut = found.total > len(found.files)
    text = "\n".join((*_lines(args, found), *unsearched(found.errors)))
    return Output(text, truncated=is_cut)


async def _folders(query: FileQuery, rt: Runtime) -> list[str]:
    """Folders with files that match the pattern, each with a slash at its end."""
    found = await rt.search.files(replace(query, pattern=f"{query.pattern}/**"))
    matches = matcher(query.pattern)
    start = "" if query.path == "." else f"{query.path.rstrip('/')}/"
    above = {parent for file in found.files for parent in _parents(file.removeprefix(start))}
    return [f"{start}{folder}/" for folder in sorted(above) if matches(folder)][:_FOLDERS]


def _parents(path: str) -> Iterator[str]:
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def _lines(args: GlobSearch, found: FoundFiles) -> Iterator[str]:
    if not found.files:
        yield nothing(
            "file matches", {"hidden": args.hidden, "include_ignored": args.include_ignored}, _SWITCHES
        )
    yield from found.files
    if found.total > len(found.files):
        shown = f"the newest {len(found.files):,} of {found.total:,} files"
        yield f"[{shown}; narrow the pattern or the path to see others]"


TOOL = ToolSpec(
    name="glob_search",
    title="Find files by name",
    description=__doc__ or "",
    permission=Permission.READ_ONLY,
    needs=frozenset({Capability.SEARCH}),
    args=GlobSearch,
    run=run,
    kind="search",
    subjects=lambda args: (args.path,),
    idempotent=True,
    aliases=(Alias("Glob"), Alias("glob")),
    profile=Profile.LEAN,
)
