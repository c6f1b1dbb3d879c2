"""Converts responses of language servers from JSON to locations."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from cattrs.errors import BaseValidationError, StructureHandlerNotFoundError
from lsprotocol import types
from lsprotocol.converters import get_converter

from mcp_toolserver.runtime.lsp.framing import ProtocolError
from mcp_toolserver.runtime.lsp.visible_locations import CodeLocation
from mcp_toolserver.text.json_values import is_list, is_object

T = TypeVar("T")
Contents = types.MarkupContent | types.MarkedString | Sequence[types.MarkedString]

MAX_ENTRIES = 2_000
"""Entries of one response that are read."""

_MOST_DEPTH = 20

CONVERTER = get_converter()


@dataclass(frozen=True, kw_only=True)
class Found:
    """The result of a query."""

    locations: Sequence[CodeLocation] = ()
    unread: int = 0
    """Entries that were not read."""
    text: str = ""
    note: str = ""
    """What has to be known of the result; a sentence."""


def unread(result: object) -> int:
    """Return how many entries of a list are not read."""
    return max(0, len(result) - MAX_ENTRIES) if is_list(result) else 0


def parse_list(result: object, kind: Callable[[dict[str, object]], type[T]]) -> list[T]:
    """Parse the entries of a list as the type that `kind` returns; skip invalid ones.

    Raises:
        ProtocolError: all entries are invalid.
    """
    raws = result[:MAX_ENTRIES] if is_list(result) else []
    found: list[T] = []
    for raw in raws:
        with suppress(ProtocolError):
            found.append(parse_as(raw, kind(raw if is_object(raw) else {})))
    if raws and not found:
        raise ProtocolError(_MALFORMED)
    return found


_MALFORMED = "sent a response that violates the protocol"
_FAILURES = (AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""Exceptions that the converter raises for invalid values, in addition to its own."""


def parse_as(raw: object, kind: type[T]) -> T:
    """Parse a value. Raises: ProtocolError: it does not match the protocol."""
    try:
        return CONVERTER.structure(raw, kind)
    except (BaseValidationError, StructureHandlerNotFoundError, *_FAILURES):
        raise ProtocolError(_MALFORMED) from None


def parse_locations(result: object) -> Found:
    """Parse one or several locations."""
    raws = [result] if is_object(result) else result
    places = parse_list(raws, lambda raw: types.LocationLink if "targetUri" in raw else types.Location)
    return Found(locations=tuple(dict.fromkeys(map(_parse_location, places))), unread=unread(result))


def symbol_type(raw: dict[str, object]) -> type[types.SymbolInformation] | type[types.WorkspaceSymbol]:
    place = raw.get("location")
    return types.SymbolInformation if is_object(place) and "range" in place else types.WorkspaceSymbol


def _parse_location(place: types.Location | types.LocationLink) -> CodeLocation:
    if isinstance(place, types.LocationLink):
        return location_at(place.target_uri, place.target_selection_range)
    return location_at(place.uri, place.range)


def location_at(uri: str, place: types.Range, label: str = "", text: str | None = None) -> CodeLocation:
    return CodeLocation(uri=uri, line=place.start.line, units=place.start.character, label=label, text=text)


def _kind(kind: types.SymbolKind) -> str:
    """Name a kind in words: `type parameter` rather than `TypeParameter`."""
    return "".join(f" {c.lower()}" if c.isupper() else c for c in kind.name).strip()


def from_item(item: types.CallHierarchyItem) -> CodeLocation:
    return location_at(item.uri, item.selection_range, item_label(item))


def item_label(item: types.CallHierarchyItem) -> str:
    return f"{_kind(item.kind)} {item.name}"


def from_symbol(symbol: types.SymbolInformation | types.WorkspaceSymbol) -> CodeLocation:
    label = f"{_kind(symbol.kind)} {symbol.name}"
    if symbol.container_name:
        label = f"{label} in {symbol.container_name}"
    place = symbol.location
    if isinstance(place, types.Location):
        return location_at(place.uri, place.range, label)
    return CodeLocation(uri=place.uri, line=0, units=0, label=label)


Symbol = types.DocumentSymbol | types.SymbolInformation


def from_outline(symbols: Sequence[Symbol], uri: str, depth: int) -> Iterator[CodeLocation]:
    """Yield the symbols of a file in order, parents first."""
    for symbol in sorted(symbols, key=_start):
        line, units = _start(symbol)
        detail = "" if isinstance(symbol, types.SymbolInformation) else symbol.detail or ""
        label = f"{_kind(symbol.kind)} {symbol.name}"
        yield CodeLocation(uri=uri, line=line, units=units, label=label, text=detail, depth=depth)
        if isinstance(symbol, types.DocumentSymbol) and symbol.children and depth < _MOST_DEPTH:
            yield from from_outline(symbol.children, uri, depth + 1)


def _start(symbol: Symbol) -> tuple[int, int]:
    is_flat = isinstance(symbol, types.SymbolInformation)
    start = (symbol.location.range if is_flat else symbol.selection_range).start
    return start.line, start.character


def from_problem(uri: str, problem: types.Diagnostic) -> CodeLocation:
    severity = (problem.severity or types.DiagnosticSeverity.Error).name.lower()
    origin = " ".join(str(part) for part in (problem.source, problem.code) if part not in (None, ""))
    message = " ".join(str(problem.message).split())
    return location_at(uri, problem.range, severity, f"{message} [{origin}]" if origin else message)


def hover_text(contents: Contents) -> str:
    if isinstance(contents, str):
        return contents.strip()
    if isinstance(contents, types.MarkupContent | types.MarkedStringWithLanguage):
        return contents.value.strip()
    return "\n\n".join(filter(None, map(hover_text, contents)))
