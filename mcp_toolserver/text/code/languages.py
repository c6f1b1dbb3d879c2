"""The languages with a known language server: their files, servers and project markers."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True, eq=False)
class Language:
    """A language, with its servers and the files that belong to it."""

    name: str
    endings: Mapping[str, str]
    """Language id of the Language Server Protocol → file name extensions, separated by spaces."""
    servers: tuple[str, ...]
    """Commands that start a server, best first."""
    markers: tuple[str, ...] = ()
    """Names of files in the top folder of a project."""
    caches: tuple[str, ...] = ()
    """Environment variables that name a folder that its tools write to; outside the project by default."""

    @cached_property
    def ids(self) -> Mapping[str, str]:
        """File name extension → language id."""
        return {end: identifier for identifier, ends in self.endings.items() for end in ends.split()}


_PYTHON = (
    *("basedpyright-langserver --stdio", "pyright-langserver --stdio"),
    *("jedi-language-server", "pylsp"),
)
_PYTHON_PROJECT = ("pyproject.toml", "setup.py", "setup.cfg", "pyrightconfig.json", "requirements.txt")
_C = {"c": "c h", "cpp": "cc cpp cxx hh hpp hxx ipp", "objective-c": "m", "objective-cpp": "mm"}
_C_PROJECT = ("compile_commands.json", "compile_flags.txt", ".clangd", ".ccls")
_SCRIPT = {
    "typescript": "ts mts cts",
    "typescriptreact": "tsx",
    "javascript": "js mjs cjs",
    "javascriptreact": "jsx",
}
_SCRIPT_SERVERS = ("typescript-language-server --stdio", "vtsls --stdio")
_SCRIPT_PROJECT = ("tsconfig.json", "jsconfig.json", "package.json")
_JAVA_PROJECT = ("pom.xml", "build.gradle", "build.gradle.kts", "settings.gradle")
_C_SHARP_PROJECT = ("global.json", "Directory.Build.props")
_PHP = ("intelephense --stdio", "phpactor language-server")
_KOTLIN = ("kotlin-lsp --stdio", "kotlin-language-server")
_KOTLIN_PROJECT = ("build.gradle.kts", "build.gradle", "pom.xml")
_HASKELL = ("haskell-language-server-wrapper --lsp",)

LANGUAGES = (
    Language("Python", {"python": "py pyi"}, _PYTHON, _PYTHON_PROJECT),
    Language("C and C++", _C, ("clangd --log=error", "ccls"), _C_PROJECT),
    Language("TypeScript and JavaScript", _SCRIPT, _SCRIPT_SERVERS, _SCRIPT_PROJECT),
    Language("Go", {"go": "go"}, ("gopls",), ("go.work", "go.mod"), ("GOCACHE",)),
    Language(
        *("Rust", {"rust": "rs"}, ("rust-analyzer",)),
        ("Cargo.toml", "rust-project.json"),
        ("CARGO_TARGET_DIR",),
    ),
    Language("Java", {"java": "java"}, ("jdtls",), _JAVA_PROJECT),
    Language("C#", {"csharp": "cs"}, ("csharp-ls", "OmniSharp -lsp"), _C_SHARP_PROJECT),
    Language("Ruby", {"ruby": "rb rake"}, ("ruby-lsp", "solargraph stdio"), ("Gemfile",)),
    Language("PHP", {"php": "php"}, _PHP, ("composer.json",)),
    Language("Lua", {"lua": "lua"}, ("lua-language-server",), (".luarc.json",)),
    Language("Shell", {"shellscript": "sh bash zsh"}, ("bash-language-server start",)),
    Language("Zig", {"zig": "zig"}, ("zls",), ("build.zig",)),
    Language("Swift", {"swift": "swift"}, ("sourcekit-lsp",), ("Package.swift",)),
    Language("Kotlin", {"kotlin": "kt kts"}, _KOTLIN, _KOTLIN_PROJECT),
    Language("Scala", {"scala": "scala sc"}, ("metals",), ("build.sbt",)),
    Language("Haskell", {"haskell": "hs"}, _HASKELL, ("cabal.project", "stack.yaml")),
    Language("OCaml", {"ocaml": "ml mli"}, ("ocamllsp",), ("dune-project",)),
    Language("Elixir", {"elixir": "ex exs"}, ("elixir-ls", "lexical"), ("mix.exs",)),
    Language("Dart", {"dart": "dart"}, ("dart language-server",), ("pubspec.yaml",)),
)

_BY_ENDING = {ending: language for language in LANGUAGES for ending in language.ids}

CODE_GLOB = f"*.{{{','.join(_BY_ENDING)}}}"
"""Matches the files in all these languages."""


def code_language(path: str) -> Language | None:
    """Return the language of a file; None if no language server is known for it."""
    return _BY_ENDING.get(ending(path))


def code_glob(path: str) -> str | None:
    """Return a glob for the files in the language of a file; None, for any file, if its name says nothing."""
    language, end = code_language(path), ending(path)
    # Named twice, because braces need two alternatives.
    return f"*.{{{','.join((end, *(language.ids if language else (end,))))}}}" if end else None


def ending(path: str) -> str:
    """Return the file name extension without its dot, in lower case; empty if there is none."""
    name = path.rpartition("/")[2]
    return name.rpartition(".")[2].lower() if "." in name else ""
