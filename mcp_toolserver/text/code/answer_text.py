"""Formats code locations as text: one per line, in the path:line:character form of editors, notes last."""

from collections.abc import Iterator

from mcp_toolserver.capabilities.code import CodeAnswer, CodeOperation

_NOUNS: dict[CodeOperation, tuple[str, str]] = {
    "goToDefinition": ("definition", "definitions"),
    "goToImplementation": ("implementation", "implementations"),
    "findReferences": ("reference", "references"),
    "hover": ("word on this", "words on this"),
    "documentSymbol": ("symbol", "symbols"),
    "workspaceSymbol": ("symbol", "symbols"),
    "prepareCallHierarchy": ("function", "functions"),
    "incomingCalls": ("call", "calls"),
    "outgoingCalls": ("called function", "called functions"),
    "diagnostics": ("problem", "problems"),
}


def answer_lines(operation: CodeOperation, answer: CodeAnswer) -> Iterator[str]:
    """Yield an answer with its notes."""
    if answer.text:
        yield answer.text
    for place in answer.places:
        where = f"{'  ' * place.depth}{place.path}:{place.line}:{place.character}:"
        yield " ".join(filter(None, (where, place.label and f"[{place.label}]", place.text)))
    if not answer.text or answer.places:
        yield _count(operation, answer)
    if answer.withheld:
        yield f"[left out: {answer.withheld} outside the workspace, hidden by a rule, or no longer there]"
    if answer.note:
        yield f"[{answer.note}]"
    if answer.unfinished:
        yield f"[{answer.source} is still reading the project; asked later, it may know more]"
    if answer.fallback:
        yield (
            f"[fallback: {answer.source}, not a language server: comments and strings count, scopes and "
            f"types do not. {answer.fallback}]"
        )


def _count(operation: CodeOperation, answer: CodeAnswer) -> str:
    one, several = _NOUNS[operation]
    by = "" if answer.fallback else f", says {answer.source}"
    if not answer.total:
        return f"No {several} found{' inside the workspace' if answer.withheld else ''}{by}."
    noun = one if answer.total == 1 else several
    if (more := answer.total - len(answer.places)) > 0:
        return f"[{len(answer.places)} of {answer.total} {noun}; {more} more{by}; grep_search lists all]"
    return f"[{answer.total} {noun}{by}]"
