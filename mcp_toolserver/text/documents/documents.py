"""Converts a document to text with the parser of its type, and selects as many whole blocks of it (notebook
cells, PDF pages) as fit into a result.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from mcp_toolserver.errors import InvalidInput
from mcp_toolserver.text.documents.file_type import DocumentKind, Image
from mcp_toolserver.text.lines.encoding import head_bytes

Block = tuple[str, Sequence[Image]]
"""The text of a part of a document, and its pictures."""


@dataclass(frozen=True, kw_only=True)
class Shown:
    """The rendered result: text and pictures."""

    text: str
    pictures: tuple[Image, ...] = ()
    truncated: bool = False
    """Whether more was asked for than is shown."""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Which parts to show."""

    skip: int
    take: int | None
    """Maximum number of blocks; None for as many as fit."""
    room: int
    """Maximum UTF-8 bytes of text."""
    column: int = 0
    """Bytes to skip in the first block."""


Kind = tuple[str, str, int]
"""What the document and a part of it are called, and the number of its first part: 0 or 1."""


def blocks(kind: Kind, total: int, wanted: Wanted, make: Callable[[int], Block | None]) -> Shown:
    """Return the wanted parts, with a last line that says which they are and how to go on.

    `make` gets the place of a part, from 0, and gives None where it is time to stop. A first part that is
    too long alone is cut.
    """
    if wanted.skip < 0:
        wanted = replace(wanted, skip=max(0, total + wanted.skip))
    end = total if wanted.take is None else min(total, wanted.skip + wanted.take)
    texts: list[str] = []
    pictures: list[Image] = []
    room = wanted.room
    cut = 0
    place = min(wanted.skip, total)
    while place < end and not cut and (block := make(place)) is not None:
        text, shown_with = block
        if place == wanted.skip and wanted.column:
            text = text.encode(errors="surrogatepass")[wanted.column :].decode(errors="ignore")
        size = len(text.encode(errors="surrogatepass")) + 1
        if size > room and texts:
            break
        head = head_bytes(text, room)
        cut = len(text) - len(head)
        texts.append(head)
        pictures += shown_with
        room -= size
        place += 1
    if cut:
        following = wanted.column + len(texts[0].encode(errors="surrogatepass"))
        rest = f"go on inside it with offset={wanted.skip}, column={following}"
        texts.append(f"[{cut} more characters of this {kind[1]} are cut; {rest}]")
    texts.append(_note(kind, total, wanted.skip, place))
    return Shown(text="\n".join(texts), pictures=tuple(pictures), truncated=bool(cut) or place < end)


def numbered(text: str) -> str:
    """Return the lines of `text`, numbered as read_file numbers them; lines of the server have no number."""
    return "\n".join(f"{number}\t{line}" for number, line in enumerate(text.split("\n"), 1))


def indented(text: str) -> str:
    """Return the lines of `text`, each after a tab, so that none looks like one of ours."""
    return "\t" + text.replace("\n", "\n\t")


def _note(kind: Kind, total: int, skip: int, following: int) -> str:
    document, part, number = kind
    if skip >= total:
        return f"[{document}: nothing at offset {skip}, it has {total} {part}s]"
    first, last = skip + number, following + number - 1
    where = f"{part}s {first}-{last} of {total}" if last > first else f"{part} {first} of {total}"
    more = f"; go on with offset={following}" if following < total else ""
    return f"[{document}: {where}{more}]"


Lines = tuple[bytes, str]
"""Text that is shown as the lines of a file are, and a note or none."""


def shown(kind: DocumentKind, content: bytes, wanted: Wanted) -> Shown | Lines:
    """Return the content of the file: the requested blocks, or its whole text as lines.

    Raises:
        Unavailable: what it takes is not installed.
        InvalidInput: it cannot be read; the text goes on from the name of the file.
    """
    # Each brings a library, or more of our own code than a server that is never asked should load.
    if kind == "notebook":
        from mcp_toolserver.text.notebook.render import view

        try:
            return view(content, wanted)
        except InvalidInput as error:
            # Whoever is to mend it has to see it.
            return content, f"shown as text, because as a notebook it {error}"
    from mcp_toolserver.text.documents.parsers import pages, sheets, word

    if kind == "PDF":
        return pages(content, wanted)
    text = word(content) if kind == "docx" else sheets(content)
    if not text.strip():
        return Shown(text="[the document has no text]")
    return text.encode(errors="replace"), ""
