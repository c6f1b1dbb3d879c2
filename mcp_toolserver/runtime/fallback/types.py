"""File types, by the names that ripgrep gives them."""

import fnmatch
import re

from mcp_toolserver.runtime.fallback.options import Options, Refused

TYPES = {
    "c": "*.c *.h",
    "cpp": "*.cc *.cpp *.cxx *.hh *.hpp *.hxx *.h *.inl",
    "cs": "*.cs",
    "csharp": "*.cs",
    "css": "*.css *.scss",
    "dart": "*.dart",
    "docker": "*Dockerfile*",
    "go": "*.go",
    "graphql": "*.graphql *.graphqls",
    "h": "*.h *.hh *.hpp",
    "html": "*.html *.htm *.ejs",
    "java": "*.java *.jsp *.jspx *.properties",
    "js": "*.js *.jsx *.cjs *.mjs *.vue",
    "json": "*.json composer.lock *.sarif",
    "jupyter": "*.ipynb",
    "kotlin": "*.kt *.kts",
    "lua": "*.lua",
    "make": "[Mm]akefile Makefile.* *.mk *.mak",
    "markdown": "*.md *.markdown *.mdown *.mdx *.mkd *.mkdn",
    "md": "*.md *.markdown *.mdown *.mdx *.mkd *.mkdn",
    "php": "*.php *.phtml",
    "proto": "*.proto",
    "py": "*.py *.pyi",
    "python": "*.py *.pyi",
    "r": "*.R *.r *.Rmd *.rmd",
    "ruby": "*.rb *.rbw *.gemspec *.rake Gemfile Rakefile config.ru",
    "rust": "*.rs",
    "scala": "*.scala *.sbt",
    "sh": "*.sh *.bash *.zsh *.ksh *.csh .bashrc .profile .zshrc",
    "sql": "*.sql *.psql",
    "svelte": "*.svelte",
    "swift": "*.swift",
    "tex": "*.tex *.bib *.sty *.cls",
    "tf": "*.tf *.tfvars",
    "toml": "*.toml Cargo.lock",
    "ts": "*.ts *.tsx *.cts *.mts",
    "txt": "*.txt",
    "typescript": "*.ts *.tsx *.cts *.mts",
    "vue": "*.vue",
    "xml": "*.xml *.xsd *.xsl *.xslt *.dtd",
    "yaml": "*.yaml *.yml",
}


def wanted_names(given: Options) -> re.Pattern[str] | None:
    """The names that the type stands for; None for any."""
    chosen = given.value("type")
    if chosen is None:
        return None
    added = (entry.split(":", 1) for entry in given.values.get("type-add", []))
    globs = [glob for name, glob in added if name == chosen] or TYPES.get(chosen, "").split()
    if not globs:
        raise Refused(f"unrecognized file type: {chosen}")
    return re.compile("|".join(map(fnmatch.translate, globs)))
