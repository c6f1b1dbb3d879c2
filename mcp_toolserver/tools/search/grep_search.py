"""Search file contents with a regular expression (ripgrep syntax: no look-around or backreferences). Skips
symbolic links, binary files, dot files and files excluded by .gitignore.
"""

from collections.abc import Iterator, Mapping, Sequence

from mcp_toolserver import tool as t
from mcp_toolserver.text.search.glob import listed

_SWITCHES = {"include_ignored": "dot files and what .gitignore lists"}


class GrepSearch(t.Args):
    pattern: str = t.Field(min_length=1, description="Regular expression to search for")
    path: t.WorkspacePath = t.Field(
        default=t.ROOT, description="File or folder to search; default: the first root"
    )
    glob: str | None = t.Field(default=None, description="Only files whose path matches this glob: `*.ts`")
    type: str | None = t.Field(default=None, description="Only this ripgrep file type: `py`")
    output_mode: t.SearchMode = t.Field(
        default="files_with_matches",
        description="What to return: paths of matching files (default), matching lines, or matches per file",
    )
    after: int | None = t.Field(
        default=None, ge=0, alias="-A", description="Lines after each match (content mode)"
    )
    before: int | None = t.Field(
        default=None, ge=0, alias="-B", description="Lines before each match (content mode)"
    )
    around: int = t.Field(
        default=0, ge=0, alias="-C", description="Lines before and after each match (content mode)"
    )
    line_numbers: bool = t.Field(
        default=True, alias="-n", description="Show line numbers in content mode (true)"
    )
    ignore_case: bool = t.Field(default=False, alias="-i", description="Ignore upper and lower case")
    multiline: bool = t.Field(default=False, description="Match across line breaks")
    head_limit: int = t.Field(default=200, ge=0, description="Most results to return (200); 0 for all")
    offset: int = t.Field(default=0, ge=0, description="Results to skip, for the next page")
    include_ignored: bool = t.Field(
        default=False, description="Include dot files and files excluded by .gitignore"
    )


async def run(args: GrepSearch, rt: t.Runtime) -> t.Output:
    before, after = _context(args)
    query = t.LineQuery(
        pattern=args.pattern,
        path=args.path,
        mode=args.output_mode,
        glob=None if args.glob is None else listed(args.glob),
        type=args.type,
        before=before,
        after=after,
        ignore_case=args.ignore_case,
        multiline=args.multiline,
        line_numbers=args.line_numbers,
        hidden=args.include_ignored,
        ignored=args.include_ignored,
        limit=args.head_limit,
        offset=args.offset,
    )
    found = await rt.search.lines(query)
    is_cut = not found.complete or args.offset + found.shown < found.total
    text = "\n".join((*_lines(args, found, is_cut=is_cut), *unsearched(found.errors)))
    return t.Output(text, truncated=is_cut)


def _context(args: GrepSearch) -> tuple[int, int]:
    """Lines before and after a match. Two zeros count as not given: strict clients send them with -C."""
    if args.before == 0 == args.after:
        return args.around, args.around
    return (
        args.around if args.before is None else args.before,
        args.around if args.after is None else args.after,
    )


def _lines(args: GrepSearch, found: t.FoundLines, *, is_cut: bool) -> Iterator[str]:
    if not found.total:
        yield nothing("matches", {"include_ignored": args.include_ignored}, _SWITCHES)
        return
    if found.text:
        yield found.text
    if not found.shown:
        yield f"[nothing after offset={args.offset}: there are {_total(args, found)}]"
    elif is_cut:
        first, last = args.offset + 1, args.offset + found.shown
        of = "of" if found.complete else "of more than"
        yield f"[{first}-{last} {of} {_total(args, found)}; go on with offset={last}]"
    else:
        yield f"[{_total(args, found)}]"


def _total(args: GrepSearch, found: t.FoundLines) -> str:
    files = "1 file" if found.files == 1 else f"{found.files:,} files"
    if args.output_mode == "files_with_matches":
        return files
    one, many = ("match", "matches") if args.output_mode == "count" else ("matching line", "matching lines")
    return f"{found.matches:,} {one if found.matches == 1 else many} in {files}"


_ERRORS = 5


def nothing(what: str, switches: Mapping[str, bool], adds: Mapping[str, str]) -> str:
    """Say that nothing was found, and what the `switches` that are off would add to the search."""
    notes = [f"Set `{name}` to search {adds[name]} too." for name, is_on in switches.items() if not is_on]
    return " ".join((f"No {what}.", *notes))


def unsearched(errors: Sequence[str]) -> list[str]:
    """Name the first files that could not be searched, and count the others, in one line."""
    if not errors:
        return []
    more = f"; and {len(errors) - _ERRORS} more" if len(errors) > _ERRORS else ""
    return [f"[not searched: {'; '.join(errors[:_ERRORS])}{more}]"]


TOOL = t.ToolSpec(
    name="grep_search",
    title="Search file contents",
    needs=frozenset({t.Capability.SEARCH}),
    args=GrepSearch,
    run=run,
    kind="search",
    idempotent=True,
    aliases=(t.Alias("Grep"), t.Alias("grep"), t.Alias("search_code")),
    profile=t.Profile.LEAN,
)
