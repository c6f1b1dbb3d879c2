"""What language servers answer, from JSON by the types of the protocol to the places that it names."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from cattrs.errors import BaseValidationError, StructureHandlerNotFoundError
from lsprotocol import types
from lsprotocol.converters import get_converter

from mcp_toolserver.runtime.lsp.view import Spot
from mcp_toolserver.runtime.lsp.wire import Unintelligible
from mcp_toolserver.runtime.sandbox.wire import is_list, is_object

T = TypeVar("T")
Contents = types.MarkupContent | types.MarkedString | Sequence[types.MarkedString]

MOST_LOOKED_AT = 2_000
"""Entries of one answer that are looked at."""

_MOST_DEPTH = 20

CONVERTER = get_converter()


@dataclass(frozen=True, kw_only=True)
class Found:
    """What came of a question."""

    spots: Sequence[Spot] = ()
    beyond: int = 0
    """Entries that were not looked at."""
    text: str = ""


def beyond(result: object) -> int:
    """How many entries of a list are not looked at."""
    return max(0, len(result) - MOST_LOOKED_AT) if is_list(result) else 0


def each(result: object, kind: Callable[[dict[str, object]], type[T]]) -> list[T]:
    """The entries of a list as what `kind` says they are; without those that are not.

    Raises:
        Unintelligible: there are some, and all are wrong.
    """
    raws = result[:MOST_LOOKED_AT] if is_list(result) else []
    found: list[T] = []
    for raw in raws:
        with suppress(Unintelligible):
            found.append(structured(raw, kind(raw if is_object(raw) else {})))
    if raws and not found:
        raise Unintelligible(_MISSHAPEN)
    return found


_MISSHAPEN = "sent an answer that is not as the protocol prescribes"
_FAILURES = (AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What the library raises, beside its own, for values of the wrong kind."""


def structured(raw: object, kind: type[T]) -> T:
    """Raises: Unintelligible: it has not the shape that the protocol prescribes."""
    try:
        return CONVERTER.structure(raw, kind)
    except (BaseValidationError, StructureHandlerNotFoundError, *_FAILURES):
        raise Unintelligible(_MISSHAPEN) from None


def located(result: object) -> Found:
    """Where one or several locations lead."""
    raws = [result] if is_object(result) else result
    places = each(raws, lambda raw: types.LocationLink if "targetUri" in raw else types.Location)
    return Found(spots=tuple(dict.fromkeys(map(_location, places))), beyond=beyond(result))


def symbol_type(raw: dict[str, object]) -> type[types.SymbolInformation] | type[types.WorkspaceSymbol]:
    place = raw.get("location")
    return types.SymbolInformation if is_object(place) and "range" in place else types.WorkspaceSymbol


def _location(place: types.Location | types.LocationLink) -> Spot:
    if isinstance(place, types.LocationLink):
        return at(place.target_uri, place.target_selection_range)
    return at(place.uri, place.range)


def at(uri: str, place: types.Range, label: str = "", text: str | None = None) -> Spot:
    return Spot(uri=uri, line=place.start.line, units=place.start.character, label=label, text=text)


def _kind(kind: types.SymbolKind) -> str:
    """`type parameter` rather than `TypeParameter`."""
    return "".join(f" {c.lower()}" if c.isupper() else c for c in kind.name).strip()


def from_item(item: types.CallHierarchyItem) -> Spot:
    return at(item.uri, item.selection_range, named(item))


def named(item: types.CallHierarchyItem) -> str:
    return f"{_kind(item.kind)} {item.name}"


def from_symbol(symbol: types.SymbolInformation | types.WorkspaceSymbol) -> Spot:
    label = f"{_kind(symbol.kind)} {symbol.name}"
    if symbol.container_name:
        label = f"{label} in {symbol.container_name}"
    place = symbol.location
    if isinstance(place, types.Location):
        return at(place.uri, place.range, label)
    return Spot(uri=place.uri, line=0, units=0, label=label)


Symbol = types.DocumentSymbol | types.SymbolInformation


def from_outline(symbols: Sequence[Symbol], uri: str, depth: int) -> Iterator[Spot]:
    """What a file holds, in its order, each before what lies in it."""
    for symbol in sorted(symbols, key=_start):
        line, units = _start(symbol)
        detail = "" if isinstance(symbol, types.SymbolInformation) else symbol.detail or ""
        label = f"{_kind(symbol.kind)} {symbol.name}"
        yield Spot(uri=uri, line=line, units=units, label=label, text=detail, depth=depth)
        if isinstance(symbol, types.DocumentSymbol) and symbol.children and depth < _MOST_DEPTH:
            yield from from_outline(symbol.children, uri, depth + 1)


def _start(symbol: Symbol) -> tuple[int, int]:
    is_flat = isinstance(symbol, types.SymbolInformation)
    start = (symbol.location.range if is_flat else symbol.selection_range).start
    return start.line, start.character


def from_problem(uri: str, problem: types.Diagnostic) -> Spot:
    severity = (problem.severity or types.DiagnosticSeverity.Error).name.lower()
    origin = " ".join(str(part) for part in (problem.source, problem.code) if part not in (None, ""))
    message = " ".join(str(problem.message).split())
    return at(uri, problem.range, severity, f"{message} [{origin}]" if origin else message)


def hover_text(contents: Contents) -> str:
    if isinstance(contents, str):
        return contents.strip()
    if isinstance(contents, types.MarkupContent | types.MarkedStringWithLanguage):
        return contents.value.strip()
    return "\n\n".join(filter(None, map(hover_text, contents)))
