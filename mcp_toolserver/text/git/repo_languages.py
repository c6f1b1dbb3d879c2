"""Counts the languages of a file tree by file extension, and its top-level folders."""

from collections import Counter
from collections.abc import Iterable, Sequence

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

Counts = Sequence[tuple[str, int]]
"""The most frequent first; equal ones by name."""


def language(path: str) -> str:
    """Return the language of a file, by its name alone."""
    name = path.rpartition("/")[2].lower()
    _, dot, ending = name.rpartition(".")
    return _NAMES.get(name) or (_BY_ENDING.get(ending, OTHER) if dot else OTHER)


def languages(paths: Iterable[str]) -> Counts:
    """Count the files per language."""
    return _ordered(Counter(map(language, paths)))


def top_folders(paths: Iterable[str]) -> Counts:
    """Count the files per top-level folder; `.` for files in none."""
    return _ordered(Counter(path.partition("/")[0] if "/" in path else "." for path in paths))


def _ordered(counts: Counter[str]) -> Counts:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))
