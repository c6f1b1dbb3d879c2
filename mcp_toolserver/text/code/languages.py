"""The supported languages: file names, language servers, project markers, and regexes that find definitions,
comments and string literals.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

SYMBOL = "SYMBOL"
"""Stands for the name in a pattern of a definition. Patterns mean the same to Python and to Rust."""

_KEYWORDS = (
    "class|struct|interface|enum|protocol|trait|record|object|module|namespace|type|typealias|typedef|func|"
    "fun|function|def|fn|sub|proc|let|var|val|const"
)
_GENERIC = (rf"\b(?:{_KEYWORDS})\s+SYMBOL\b",)
_MEMBER = r"^\s*(?:[\w<>\[\],.?@&*:]+\s+)+SYMBOL\s*\([^;]*(?:\{|$)"
_NO_NAMES = frozenset(
    ("if", "for", "while", "switch", "catch", "return", "else", "function", "do", "with", "synchronized")
)

# Comments and string literals, also where the end is missing. The quantifiers are possessive, so that a long
# literal takes linear time and no memory.
_SLASHES = r"//[^\n]*"
_BLOCK = r"/\*[\s\S]*?(?:\*/|\Z)"
_HASH = r"#[^\n]*"
_DASHES = r"--[^\n]*"
_CHARACTER = r"'(?:\\[^'\n]{1,10}|[^'\\\n])'"
_SINGLE = r"'(?:[^'\\\n]++|\\[\s\S])*+'?"
_DOUBLE = r'"(?:[^"\\\n]++|\\[\s\S])*+"?'
_DOUBLE_LINES = r'"(?:[^"\\]++|\\[\s\S])*+"?'
_BACKTICKS = r"`(?:[^`\\]++|\\[\s\S])*+`?"
_TRIPLE = r'"""(?:[^"\\]++|\\[\s\S]|"(?!""))*+(?:""")?'
_TRIPLE_SINGLE = r"'''(?:[^'\\]++|\\[\s\S]|'(?!''))*+(?:''')?"
_F = r"\b[fF][rR]?|\b[rR][fF]"

_LIKE_C = (_SLASHES, _BLOCK, _DOUBLE, _CHARACTER)


@dataclass(frozen=True, kw_only=True, eq=False)
class Language:
    """A language, with its servers and the files that belong to it."""

    name: str
    ids: Mapping[str, str]
    """File name extension → language id of the Language Server Protocol."""
    servers: tuple[tuple[str, ...], ...] = ()
    """Commands that start a server: program and arguments, best first."""
    caches: tuple[str, ...] = ()
    """Environment variables that name a folder that its tools write to; outside the project by default."""
    markers: tuple[str, ...] = ()
    """Names of files in the top folder of a project."""
    definitions: tuple[str, ...] = field(default=_GENERIC)
    """Patterns of definitions; each contains `SYMBOL` once."""
    skipped: tuple[str, ...] = ()
    """Patterns of comments and string literals, longest delimiter first."""
    interpolated: tuple[str, ...] = ()
    """Patterns of string literals that can contain code; they precede `skipped`."""

    @property
    def glob(self) -> str:
        """Matches its files."""
        return f"*.{{{','.join(self.ids)}}}" if len(self.ids) > 1 else f"*.{next(iter(self.ids))}"

    @property
    def programs(self) -> str:
        """The names of its servers."""
        return ", ".join(server[0] for server in self.servers)


def _same(identifier: str, endings: str) -> dict[str, str]:
    return dict.fromkeys(endings.split(), identifier)


LANGUAGES = (
    Language(
        name="Python",
        ids=_same("python", "py pyi"),
        servers=(
            ("basedpyright-langserver", "--stdio"),
            ("pyright-langserver", "--stdio"),
            ("jedi-language-server",),
            ("pylsp",),
        ),
        markers=("pyproject.toml", "setup.py", "setup.cfg", "pyrightconfig.json", "requirements.txt"),
        definitions=(
            r"^\s*(?:async\s+)?def\s+SYMBOL\b",
            r"^\s*class\s+SYMBOL\b",
            r"^SYMBOL\s*(?::[^=]+)?=(?:[^=]|$)",
        ),
        skipped=(_HASH, _TRIPLE, _TRIPLE_SINGLE, _DOUBLE, _SINGLE),
        interpolated=tuple(f"(?:{_F}){quoted}" for quoted in (_TRIPLE, _TRIPLE_SINGLE, _DOUBLE, _SINGLE)),
    ),
    Language(
        name="C and C++",
        ids={
            **_same("c", "c h"),
            **_same("cpp", "cc cpp cxx hh hpp hxx ipp"),
            **_same("objective-c", "m"),
            **_same("objective-cpp", "mm"),
        },
        servers=(("clangd", "--log=error"), ("ccls",)),
        markers=("compile_commands.json", "compile_flags.txt", ".clangd", ".ccls"),
        definitions=(
            r"\b(?:class|struct|union|enum(?:\s+class)?|namespace)\s+SYMBOL\b\s*(?:final\s*)?(?:\{|:|$)",
            r"^\s*#\s*define\s+SYMBOL\b",
            r"^\s*typedef\b.*\bSYMBOL\s*;",
            r"^\s*using\s+SYMBOL\s*=",
            r"^[A-Za-z_][\w:<>,*&\s]*[\s*&:]SYMBOL\s*\([^;]*(?:\{|$)",
        ),
        skipped=(
            _SLASHES,
            _BLOCK,
            r'R"(?P<mark>[^(\s"\\]{0,16})\([\s\S]*?(?:\)(?P=mark)"|\Z)',
            _DOUBLE,
            _CHARACTER,
        ),
    ),
    Language(
        name="TypeScript and JavaScript",
        ids={
            **_same("typescript", "ts mts cts"),
            "tsx": "typescriptreact",
            **_same("javascript", "js mjs cjs"),
            "jsx": "javascriptreact",
        },
        servers=(("typescript-language-server", "--stdio"), ("vtsls", "--stdio")),
        markers=("tsconfig.json", "jsconfig.json", "package.json"),
        definitions=(
            r"\b(?:function\s*\*?|class|interface|type|enum|namespace|const|let|var)\s+SYMBOL\b",
            r"^\s+(?:(?:public|private|protected|static|async|get|set)\s+)*SYMBOL\s*\([^;]*\)\s*(?::[^{;]+)?\{",
        ),
        skipped=(_SLASHES, _BLOCK, _DOUBLE, _SINGLE),
        interpolated=(_BACKTICKS,),
    ),
    Language(
        name="Go",
        ids={"go": "go"},
        servers=(("gopls",),),
        caches=("GOCACHE",),
        markers=("go.work", "go.mod"),
        definitions=(r"^\s*(?:func\s+(?:\([^)]*\)\s*)?|type\s+|var\s+|const\s+)SYMBOL\b",),
        skipped=(*_LIKE_C, r"`[^`]*(?:`|\Z)"),
    ),
    Language(
        name="Rust",
        ids={"rs": "rust"},
        servers=(("rust-analyzer",),),
        caches=("CARGO_TARGET_DIR",),
        markers=("Cargo.toml", "rust-project.json"),
        definitions=(
            r"\b(?:fn|struct|enum|trait|type|const|static|mod|union)\s+SYMBOL\b",
            r"\bmacro_rules!\s*SYMBOL\b",
        ),
        skipped=(_SLASHES, _BLOCK, r'\br(?P<mark>#{0,16})"[\s\S]*?(?:"(?P=mark)|\Z)', _CHARACTER),
        interpolated=(_DOUBLE_LINES,),
    ),
    Language(
        name="Java",
        ids={"java": "java"},
        servers=(("jdtls",),),
        markers=("pom.xml", "build.gradle", "build.gradle.kts", "settings.gradle"),
        definitions=(*_GENERIC, _MEMBER),
        skipped=(_TRIPLE, *_LIKE_C),
    ),
    Language(
        name="C#",
        ids={"cs": "csharp"},
        servers=(("csharp-ls",), ("OmniSharp", "-lsp")),
        markers=("global.json", "Directory.Build.props"),
        definitions=(*_GENERIC, _MEMBER),
        skipped=_LIKE_C,
        interpolated=(_TRIPLE, rf"\${_DOUBLE}"),
    ),
    Language(
        name="Ruby",
        ids={"rb": "ruby", "rake": "ruby"},
        servers=(("ruby-lsp",), ("solargraph", "stdio")),
        markers=("Gemfile",),
        definitions=(r"^\s*(?:def\s+(?:self\.)?|class\s+|module\s+)SYMBOL\b", r"^\s*SYMBOL\s*=[^=]"),
        skipped=(r"^=begin\b[\s\S]*?(?:^=end\b|\Z)", _HASH, _SINGLE),
        interpolated=(_DOUBLE_LINES,),
    ),
    Language(
        name="PHP",
        ids={"php": "php"},
        servers=(("intelephense", "--stdio"), ("phpactor", "language-server")),
        markers=("composer.json",),
        skipped=(_SLASHES, _BLOCK, _HASH, _SINGLE),
        interpolated=(_DOUBLE_LINES,),
    ),
    Language(
        name="Lua",
        ids={"lua": "lua"},
        servers=(("lua-language-server",),),
        markers=(".luarc.json",),
        definitions=(r"\bfunction\s+(?:[\w.]+[.:])?SYMBOL\b", r"^\s*local\s+SYMBOL\b"),
        skipped=(r"--\[(?P<mark>=*)\[[\s\S]*?(?:\](?P=mark)\]|\Z)", _DASHES, _DOUBLE, _SINGLE),
    ),
    Language(
        name="Shell",
        ids=_same("shellscript", "sh bash zsh"),
        servers=(("bash-language-server", "start"),),
        definitions=(r"^\s*(?:function\s+)?SYMBOL\s*\(\s*\)", r"^\s*function\s+SYMBOL\b"),
        skipped=(r"(?<![\w$\{])#[^\n]*", r"'[^']*(?:'|\Z)"),
        interpolated=(_DOUBLE_LINES,),
    ),
    Language(
        name="Zig",
        ids={"zig": "zig"},
        servers=(("zls",),),
        markers=("build.zig",),
        skipped=(_SLASHES, r"\\\\[^\n]*", _DOUBLE, _CHARACTER),
    ),
    Language(
        name="Swift",
        ids={"swift": "swift"},
        servers=(("sourcekit-lsp",),),
        markers=("Package.swift",),
        skipped=(_SLASHES, _BLOCK),
        interpolated=(_TRIPLE, _DOUBLE),
    ),
    Language(
        name="Kotlin",
        ids=_same("kotlin", "kt kts"),
        servers=(("kotlin-lsp", "--stdio"), ("kotlin-language-server",)),
        markers=("build.gradle.kts", "build.gradle", "pom.xml"),
        skipped=(_SLASHES, _BLOCK, _CHARACTER),
        interpolated=(_TRIPLE, _DOUBLE),
    ),
    Language(
        name="Scala",
        ids=_same("scala", "scala sc"),
        servers=(("metals",),),
        markers=("build.sbt",),
        skipped=(_SLASHES, _BLOCK, _CHARACTER),
        interpolated=(_TRIPLE, _DOUBLE),
    ),
    Language(
        name="Haskell",
        ids={"hs": "haskell"},
        servers=(("haskell-language-server-wrapper", "--lsp"),),
        markers=("cabal.project", "stack.yaml"),
        definitions=(r"^(?:data|newtype|type|class)\s+SYMBOL\b", r"^SYMBOL\s*::"),
        skipped=(r"\{-[\s\S]*?(?:-\}|\Z)", _DASHES, _DOUBLE, _CHARACTER),
    ),
    Language(
        name="OCaml",
        ids=_same("ocaml", "ml mli"),
        servers=(("ocamllsp",),),
        markers=("dune-project",),
        definitions=(r"^\s*(?:let(?:\s+rec)?|and|type|module|class|val|external)\s+SYMBOL\b",),
        skipped=(r"\(\*[\s\S]*?(?:\*\)|\Z)", _DOUBLE_LINES, _CHARACTER),
    ),
    Language(
        name="Elixir",
        ids=_same("elixir", "ex exs"),
        servers=(("elixir-ls",), ("lexical",)),
        markers=("mix.exs",),
        definitions=(r"^\s*(?:defp?|defmodule|defmacro|defstruct)\s+(?:[\w.]+\.)?SYMBOL\b",),
        skipped=(_HASH, _SINGLE),
        interpolated=(_TRIPLE, _DOUBLE),
    ),
    Language(
        name="Dart",
        ids={"dart": "dart"},
        servers=(("dart", "language-server"),),
        markers=("pubspec.yaml",),
        definitions=(*_GENERIC, _MEMBER),
        skipped=(_SLASHES, _BLOCK),
        interpolated=(_TRIPLE, _TRIPLE_SINGLE, _DOUBLE, _SINGLE),
    ),
)

_BY_ENDING = {ending: language for language in LANGUAGES for ending in language.ids}


def code_language(path: str) -> Language | None:
    """Return the language of a file; None if no language server is known for it."""
    return _BY_ENDING.get(ending(path))


def searched_language(path: str) -> Language:
    """Return the language of a file; for a file without a known server, one that can only be searched."""
    known = code_language(path)
    return known or Language(name=f".{ending(path)} files", ids={ending(path): "plaintext"})


def ending(path: str) -> str:
    """Return the file name extension without its dot, in lower case; empty if there is none."""
    return path.rpartition("/")[2].rpartition(".")[2].lower() if "." in path.rpartition("/")[2] else ""


def definition_pattern(language: Language, name: str) -> str:
    """Return a regex that finds lines that define what the pattern `name` matches."""
    return "|".join(f"(?:{pattern.replace(SYMBOL, name)})" for pattern in language.definitions)


@dataclass(frozen=True, kw_only=True)
class Outlined:
    """A line that seems to define something."""

    name: str
    line: int
    """Line number, from 0."""
    index: int
    """Index of the name in the line, from 0."""


def outline(lines: list[str], language: Language) -> list[Outlined]:
    """Find the definitions in a file with regexes."""
    patterns = [
        re.compile(given.replace(SYMBOL, r"(?P<name>[A-Za-z_$][\w$]*)")) for given in language.definitions
    ]
    found: list[Outlined] = []
    for number, line in enumerate(lines):
        match = next((hit for pattern in patterns if (hit := pattern.search(line[:_LINE]))), None)
        if match is not None and match["name"] not in _NO_NAMES:
            found.append(Outlined(name=match["name"], line=number, index=match.start("name")))
    return found


_LINE = 1_000
"""Characters of a line that are searched for a definition."""
