"""Find files by name pattern and return their paths, newest first. Skips symbolic links, dot files and files
excluded by .gitignore.
"""

from collections.abc import Iterator
from dataclasses import replace

from mcp_toolserver import tool as t
from mcp_toolserver.text.search.glob import listed, matcher, rooted
from mcp_toolserver.tools.search.grep_search import nothing, unsearched

_ENTRIES = 1_000
_FOLDERS = 100
_SWITCHES = {"hidden": "dot files", "include_ignored": "what .gitignore lists"}


class GlobSearch(t.Args):
    pattern: str = t.Field(
        min_length=1, description="Glob such as `src/**/*.{ts,js}`; without `/` it matches at any depth"
    )
    path: t.WorkspacePath = t.Field(default=t.ROOT, description="Folder to search; default: the first root")
    hidden: bool = t.Field(default=False, description="Include dot files")
    include_ignored: bool = t.Field(default=False, description="Include files excluded by .gitignore")

    @t.model_validator(mode="before")
    @classmethod
    def _from_its_folder(cls, given: dict[str, object]) -> dict[str, object]:
        """An absolute pattern names its folder, which rules and roots must see as the path."""
        pattern = given.get("pattern")
        if not isinstance(pattern, str) or not pattern.startswith("/"):
            return given
        folder, rest = rooted(pattern)
        return {**given, "path": folder, "pattern": rest}


async def run(args: GlobSearch, rt: t.Runtime) -> t.Output:
    query = t.FileQuery(
        pattern=listed(args.pattern),
        path=args.path,
        hidden=args.hidden,
        ignored=args.include_ignored,
        limit=_ENTRIES,
    )
    found = await rt.search.files(query)
    if not found.files and (folders := await _folders(query, rt)):
        return t.Output("\n".join(("No file matches, but these folders do:", *folders)))
    is_cut = found.total > len(found.files)
    text = "\n".join((*_lines(args, found), *unsearched(found.errors)))
    return t.Output(text, truncated=is_cut)


async def _folders(query: t.FileQuery, rt: t.Runtime) -> list[str]:
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


def _lines(args: GlobSearch, found: t.FoundFiles) -> Iterator[str]:
    if not found.files:
        yield nothing(
            "file matches", {"hidden": args.hidden, "include_ignored": args.include_ignored}, _SWITCHES
        )
    yield from found.files
    if found.total > len(found.files):
        shown = f"the newest {len(found.files):,} of {found.total:,} files"
        yield f"[{shown}; narrow the pattern or the path to see others]"


TOOL = t.ToolSpec(
    name="glob_search",
    title="Find files by name",
    needs=frozenset({t.Capability.SEARCH}),
    args=GlobSearch,
    run=run,
    kind="search",
    idempotent=True,
    aliases=(t.Alias("Glob"), t.Alias("glob")),
    profile=t.Profile.LEAN,
)
