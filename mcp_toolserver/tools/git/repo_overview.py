"""Summarize a git repository: branches, remotes, recent commits, languages by file count, folders."""

from collections import Counter
from collections.abc import Iterable, Iterator

from mcp_toolserver import tool as t
from mcp_toolserver.text.git.messages import MAX_BRANCHES, counted

_MOST = 20
"""Languages, folders and remotes that are named."""

_DAY = 10
"""Characters of a day in ISO 8601."""


class RepoOverview(t.Args):
    path: t.WorkspacePath = t.Field(default=t.ROOT, description="Any file or folder in the repository")


async def run(args: RepoOverview, rt: t.Runtime) -> t.Output:
    found = await rt.git.overview(args.path)
    return t.Output("\n".join(_lines(found)))


def _lines(found: t.GitOverview) -> Iterator[str]:
    files = counted(len(found.files), "file") + ("" if found.complete else " or more")
    commits = counted(found.all_commits, "commit")
    yield f"Repository {found.folder}: {files}, {commits}, {counted(found.tags, 'tag')}"
    yield from _titled("Branches", map(_branch, found.branches[:MAX_BRANCHES]), len(found.branches))
    remotes = [f"{name} {address}" for name, address in found.remotes[:_MOST]]
    yield from _titled("Remotes", remotes, len(found.remotes))
    last = [
        f"{commit.id[:12]} {commit.date[:_DAY]} {commit.author}: {commit.subject}" for commit in found.commits
    ]
    yield from _titled("Last commits", last, len(last))
    folders = (path.partition("/")[0] if "/" in path else "." for path in found.files)
    for title, names in (
        ("Languages by files", map(language, found.files)),
        ("Top folders by files", folders),
    ):
        counts = sorted(Counter(names).items(), key=lambda item: (-item[1], item[0]))
        lines = (f"{name} {count:,}" for name, count in counts[:_MOST])
        yield from _titled(title, lines, len(counts))


def _titled(title: str, lines: Iterable[str], total: int) -> Iterator[str]:
    """Nothing where there are none."""
    shown = [f"  {line}" for line in lines]
    if shown:
        more = f" ({len(shown)} of {total:,})" if total > len(shown) else ""
        yield f"{title}{more}:"
        yield from shown


def _branch(branch: t.GitBranch) -> str:
    mark = "* " if branch.current else ""
    upstream = f" -> {branch.upstream}" if branch.upstream else ""
    return f"{mark}{branch.name} {branch.commit[:12]} {branch.date[:_DAY]}{upstream}"


_ENDINGS = {
    "Assembly": "asm s",
    "C": "c h",
    "C#": "cs csx",
    "C++": "cc cpp cxx hh hpp hxx",
    "CSS": "css less sass scss",
    "Clojure": "clj cljc cljs edn",
    "Dart": "dart",
    "Elixir": "ex exs",
    "Erlang": "erl hrl",
    "F#": "fs fsi fsx",
    "Fortran": "f f90 f95",
    "Go": "go",
    "GraphQL": "graphql gql",
    "HTML": "htm html",
    "Haskell": "hs lhs",
    "JSON": "json json5 jsonc jsonl",
    "Java": "java",
    "JavaScript": "cjs js jsx mjs",
    "Julia": "jl",
    "Jupyter": "ipynb",
    "Kotlin": "kt kts",
    "Lua": "lua",
    "Markdown": "markdown md mdx",
    "Nix": "nix",
    "OCaml": "ml mli",
    "Objective-C": "m mm",
    "PHP": "php",
    "Perl": "pl pm",
    "PowerShell": "ps1 psm1",
    "Protocol Buffers": "proto",
    "Python": "py pyi pyx",
    "R": "r rmd",
    "Ruby": "rb rake gemspec",
    "Rust": "rs",
    "SQL": "sql",
    "Scala": "sc scala",
    "Shell": "bash fish sh zsh",
    "Svelte": "svelte",
    "Swift": "swift",
    "TOML": "toml",
    "Terraform": "tf tfvars",
    "Text": "rst txt adoc",
    "TypeScript": "cts mts ts tsx",
    "Vue": "vue",
    "XML": "xml xsd xsl",
    "YAML": "yaml yml",
    "Zig": "zig",
}
_NAMES = {"dockerfile": "Dockerfile", "makefile": "Makefile", "cmakelists.txt": "CMake", "justfile": "Just"}
_BY_ENDING = {ending: language for language, endings in _ENDINGS.items() for ending in endings.split()}
OTHER = "other"


def language(path: str) -> str:
    """Return the language of a file, by its name alone."""
    name = path.rpartition("/")[2].lower()
    _, dot, ending = name.rpartition(".")
    return _NAMES.get(name) or (_BY_ENDING.get(ending, OTHER) if dot else OTHER)


TOOL = t.ToolSpec(
    name="repo_overview",
    title="Summarize repository",
    needs=frozenset({t.Capability.GIT}),
    args=RepoOverview,
    run=run,
    kind="read",
    idempotent=True,
    aliases=(t.Alias("RepoOverview"),),
)
