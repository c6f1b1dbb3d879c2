"""Turns the workspace edit of a language server into new contents of files. The edit is untrusted: every file
lies inside the roots and is one that the call may touch, every position is in the text that the server was
sent, and no two edits overlap.

Nothing is written here. The edit creates, changes and moves files; one that deletes files is refused.
"""

from contextlib import suppress
from dataclasses import dataclass, field

from lsprotocol import types

from mcp_toolserver.capabilities.call_scope import Refusal
from mcp_toolserver.capabilities.code import ProposedFile
from mcp_toolserver.capabilities.files import CanonicalPath
from mcp_toolserver.errors import Conflict, Denied, InvalidInput, ToolError, Unavailable
from mcp_toolserver.runtime.files.workspace import Workspace
from mcp_toolserver.runtime.lsp.documents import read_bytes, to_path
from mcp_toolserver.runtime.lsp.requests import parse_as
from mcp_toolserver.runtime.lsp.session import Session
from mcp_toolserver.text.code.positions import InvalidEdit, TextEdit, apply_edits

MOST_FILES = 500
"""Files that one edit may touch."""

MOST_EDITS = 20_000
"""Replaced ranges in all files."""

MOST_BYTES = 48 << 20
"""Bytes of all files before the edit."""

_BOM = "\ufeff".encode()

_Step = types.TextDocumentEdit | types.CreateFile | types.RenameFile | types.DeleteFile


@dataclass(kw_only=True)
class _Draft:
    """A file that the edit touches."""

    origin: CanonicalPath | None
    """Where its content is now; None for a new file."""
    before: bytes
    text: str
    edits: list[TextEdit] = field(default_factory=list[TextEdit])


@dataclass
class WorkspaceEditReader:
    session: Session
    workspace: Workspace
    refuses: Refusal
    _drafts: dict[CanonicalPath, _Draft] = field(default_factory=dict[CanonicalPath, _Draft])
    """The touched files, by the path that they are to have."""
    _bytes: int = 0
    _edits: int = 0

    async def files(self, raw: object) -> tuple[ProposedFile, ...]:
        """Return the proposed files of an edit, in the form of the protocol.

        Raises:
            ProtocolError: it is no workspace edit.
            Conflict: it is about another version of a file than the one on disk.
            Denied: it touches a file that this call may not touch.
            Unavailable: it cannot be used.
        """
        for step in _steps(parse_as(raw, types.WorkspaceEdit)):
            match step:
                case types.TextDocumentEdit():
                    await self._change(step)
                case types.CreateFile():
                    self._create(step)
                case types.RenameFile():
                    await self._move(step)
                case types.DeleteFile():
                    raise self._unusable("deletes a file or folder")
            if len(self._drafts) > MOST_FILES:
                raise self._unusable(f"touches more than {MOST_FILES} files")
        return tuple(one for path, draft in self._drafts.items() for one in self._proposed(path, draft))

    async def _change(self, step: types.TextDocumentEdit) -> None:
        path = self._path(step.text_document.uri)
        draft = await self._draft(path)
        version = step.text_document.version
        document = self.session.documents.of(self.workspace.spellings(path)[-1])
        if document is not None and (
            document.seen.text != draft.text or not (version is None or document.is_current(version))
        ):
            raise Conflict(f"'{path}' changed while {self.session.name} answered. Try again.")
        self._edits += len(step.edits)
        if self._edits > MOST_EDITS:
            raise self._unusable(f"replaces more than {MOST_EDITS} ranges")
        for edit in step.edits:
            if isinstance(edit, types.SnippetTextEdit):
                raise self._unusable("holds a snippet with places to fill in")
            start, end = ((place.line, place.character) for place in (edit.range.start, edit.range.end))
            draft.edits.append((start, end, edit.new_text))

    def _create(self, step: types.CreateFile) -> None:
        path, options = self._path(step.uri), step.options or types.CreateFileOptions()
        if not self._exists(path):
            self._drafts[path] = _Draft(origin=None, before=b"", text="")
        elif options.overwrite or not options.ignore_if_exists:
            raise self._unusable(f"creates '{path}', which exists")

    async def _move(self, step: types.RenameFile) -> None:
        old, new = self._path(step.old_uri), self._path(step.new_uri)
        if self._exists(new):
            raise self._unusable(f"moves '{old}' to '{new}', which exists")
        await self._draft(old)
        self._drafts[new] = self._drafts.pop(old)

    def _exists(self, path: CanonicalPath) -> bool:
        return path in self._drafts or self.workspace.kind(path) != "missing"

    async def _draft(self, path: CanonicalPath) -> _Draft:
        if path not in self._drafts:
            if any(draft.origin == path for draft in self._drafts.values()):
                raise self._unusable(f"changes '{path}' after it has moved that file")
            if self.workspace.kind(path) == "folder":
                raise self._unusable(f"moves the folder '{path}'")
            content = await read_bytes(path, self.workspace)
            self._bytes += len(content)
            if self._bytes > MOST_BYTES:
                raise self._unusable(f"touches files of more than {MOST_BYTES:,} bytes")
            try:
                text = content.removeprefix(_BOM).decode()
            except UnicodeDecodeError:
                raise InvalidInput(
                    f"'{path}' is not UTF-8, and positions of language servers are only reliable in UTF-8. "
                    "Change it with edit_file."
                ) from None
            self._drafts[path] = _Draft(origin=path, before=content, text=text)
        return self._drafts[path]

    def _path(self, uri: str) -> CanonicalPath:
        """Return the path of a file that this call may touch.

        What lies outside the roots or is hidden is not named.
        """
        absolute = to_path(uri)
        path = None
        with suppress(ToolError):
            found = None if absolute is None else self.workspace.canonical(absolute)
            path = None if found is None or self.workspace.is_hidden(found) else found
        if path is None:
            raise Denied(
                f"{self.session.name} proposes a change of something that is outside the workspace, hidden "
                "by a rule, or no file. Nothing was changed."
            )
        if why := self.refuses(*self.workspace.spellings(path)):
            raise Denied(f"The change would also touch '{path}': {why} Nothing was changed.")
        return path

    def _proposed(self, path: CanonicalPath, draft: _Draft) -> tuple[ProposedFile, ...]:
        try:
            text = apply_edits(draft.text, draft.edits, self.session.encoding)
            after = (_BOM if draft.before.startswith(_BOM) else b"") + text.encode()
        except InvalidEdit as error:
            raise self._unusable(f"has an edit of '{path}' that {error}") from None
        except UnicodeEncodeError:
            raise self._unusable(f"puts text into '{path}' that is not Unicode") from None
        count = len(draft.edits)
        if draft.origin == path:
            change = ProposedFile(path=path, before=draft.before, after=after, edits=count)
            return (change,) if after != draft.before else ()
        new = ProposedFile(path=path, before=None, after=after, like=draft.origin, edits=count)
        if draft.origin is None:
            return (new,)
        return (ProposedFile(path=draft.origin, before=draft.before, after=None), new)

    def _unusable(self, why: str) -> Unavailable:
        return Unavailable(
            f"{self.session.name} proposes a change that {why}, so it is not used. Nothing was changed; "
            "edit_file and apply_patch can make the change."
        )


def _steps(edit: types.WorkspaceEdit) -> list[_Step]:
    """Return the steps of an edit in order; `documentChanges` take precedence, as in the protocol."""
    if edit.document_changes is not None:
        return list(edit.document_changes)
    return [
        types.TextDocumentEdit(
            text_document=types.OptionalVersionedTextDocumentIdentifier(uri=uri), edits=list(edits)
        )
        for uri, edits in (edit.changes or {}).items()
    ]
