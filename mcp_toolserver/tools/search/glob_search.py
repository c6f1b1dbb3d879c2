"""Find files by name pattern and return their paths, newest first. Skips symbolic links, dot files and files
excluded by .gitignore.
"""

from collections.abc import Iterator
from dataclasses import replace

from mcp_toolserver import tool as t
from mcp_toolserver.text.search.glob import listed, matcher, rooted
from mcp_toolserver.tools.search.grep_search import nothing, unsearched

_ENTRIES = 200
_FOLDERS = 100
_SWITCHES = {"hidden": "dot files", "include_ignored": "what .gitignore lists"}


class GlobSearch(t.Args):
    pattern: str = t.Field(
        min_length=1, description="Glob such as `src/**/*.{ts,js}`; without `/` it matches at any depth"
    )
    path: t.WorkspacePath = t.Field(default=t.ROOT, description="Folder to search; default: the first root")
    hidden: bool = t.Field(default=False, description="Include dot files")
    include_ignored: bool = t.Field(default=False, description="Include files excluded by .gitignore")
    limit: int = t.Field(default=_ENTRIES, ge=1, description=f"Most files to return ({_ENTRIES})")
    offset: int = t.Field(default=0, ge=0, description="Files to skip")

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
        limit=args.limit,
        offset=args.offset,
    )
    found = await rt.search.files(query)
    if not found.total and (folders := await _folders(query, rt)):
        return t.Output("\n".join(("No file matches, but these folders do:", *folders)))
    is_cut = args.offset + len(found.files) < found.total
    text = "\n".join((*_lines(args, found), *unsearched(found.errors)))
    return t.Output(text, truncated=is_cut)


async def _folders(query: t.FileQuery, rt: t.Runtime) -> list[str]:
    """Folders with files that match the pattern, each with a slash at its end."""
    inside = replace(query, pattern=f"{query.pattern}/**", limit=10 * _FOLDERS, offset=0)
    found = await rt.search.files(inside)
    matches = matcher(query.pattern)
    start = "" if query.path == "." else f"{query.path.rstrip('/')}/"
    above = {parent for file in found.files for parent in _parents(file.removeprefix(start))}
    return [f"{start}{folder}/" for folder in sorted(above) if matches(folder)][:_FOLDERS]


def _parents(path: str) -> Iterator[str]:
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def _lines(args: GlobSearch, found: t.FoundFiles) -> Iterator[str]:
    if not found.total:
        yield nothing(
            "file matches", {"hidden": args.hidden, "include_ignored": args.include_ignored}, _SWITCHES
        )
    yield from found.files
    end = args.offset + len(found.files)
    if found.total and not found.files:
        yield f"[nothing after offset={args.offset}: there are {found.total:,} files]"
    elif len(found.files) < found.total:
        more = f"; go on with offset={end}" if end < found.total else ""
        yield f"[files {args.offset + 1:,}-{end:,} of {found.total:,}, the newest first{more}]"


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
