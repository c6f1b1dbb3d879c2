"""Defines the client capabilities sent to language servers, and answers their requests."""

from collections.abc import Sequence

from mcp_toolserver.runtime.lsp.documents import to_uri
from mcp_toolserver.text.code.positions import Encoding
from mcp_toolserver.text.json_values import is_list, is_object

_MOST_SETTINGS = 1_000
"""Configuration items answered in one request."""

_MOST_NAME = 100
"""Characters of a method's name."""

_ENCODINGS: dict[str, Encoding] = {"utf-32": "utf-32", "utf-8": "utf-8", "utf-16": "utf-16"}

_LINKS = {"dynamicRegistration": False, "linkSupport": True}
_KINDS = {"valueSet": list(range(1, 27))}
_TEXT = {"contentFormat": ["markdown", "plaintext"]}

_ACTION_KINDS = [
    *("", "quickfix", "refactor", "refactor.extract", "refactor.inline", "refactor.rewrite", "source"),
    *("source.organizeImports", "source.fixAll"),
]

CAPABILITIES: dict[str, object] = {
    "general": {"positionEncodings": list(_ENCODINGS)},
    "window": {"workDoneProgress": True},
    "workspace": {
        # Always refused; the edit of a command that was run for it is checked and written by us.
        "applyEdit": True,
        "workspaceEdit": {"documentChanges": True, "resourceOperations": ["create", "rename"]},
        "configuration": True,
        "workspaceFolders": True,
        "didChangeWatchedFiles": {"dynamicRegistration": True},
        "symbol": {"symbolKind": _KINDS},
    },
    "textDocument": {
        "synchronization": {"didSave": True},
        "definition": _LINKS,
        "implementation": _LINKS,
        "references": {},
        "hover": _TEXT,
        "documentSymbol": {"hierarchicalDocumentSymbolSupport": True, "symbolKind": _KINDS},
        "callHierarchy": {},
        "rename": {},
        "formatting": {},
        "codeAction": {
            "codeActionLiteralSupport": {"codeActionKind": {"valueSet": _ACTION_KINDS}},
            "dataSupport": True,
            "disabledSupport": True,
            "isPreferredSupport": True,
            "resolveSupport": {"properties": ["edit"]},
        },
        "diagnostic": {"dynamicRegistration": True},
        "publishDiagnostics": {"versionSupport": True, "dataSupport": True},
    },
}
"""Nothing here lets a server change anything: an edit is an answer, which `workspace_edit` checks."""

_REFRESHED = ("codeLens", "semanticTokens", "inlayHint", "inlineValue", "diagnostic", "foldingRange")
_ACKNOWLEDGED = frozenset(
    (
        *("client/registerCapability", "client/unregisterCapability", "window/workDoneProgress/create"),
        *("window/showMessageRequest", *(f"workspace/{what}/refresh" for what in _REFRESHED)),
    )
)
"""Requests that are answered with nothing."""


def initialize_params(folder: str) -> dict[str, object]:
    uri = to_uri(folder)
    return {
        # The sandbox has its own process ids, in which ours means another process or none.
        "processId": None,
        "clientInfo": {"name": "mcp-toolserver"},
        "rootUri": uri,
        "rootPath": folder,
        "workspaceFolders": [{"uri": uri, "name": folder.rpartition("/")[2] or folder}],
        "capabilities": CAPABILITIES,
    }


def answer_request(folder: str, method: str, params: object) -> dict[str, object]:
    """Return the `result` of a request of a server, or the `error` for one that no server needs."""
    match method:
        case "workspace/configuration":
            items = params.get("items") if is_object(params) else None
            return {"result": [None] * min(len(items), _MOST_SETTINGS) if is_list(items) else []}
        case "workspace/workspaceFolders":
            return {"result": initialize_params(folder)["workspaceFolders"]}
        case "workspace/applyEdit":
            return {"result": {"applied": False, "failureReason": "the client checks it first"}}
        case _ if method in _ACKNOWLEDGED:
            return {"result": None}
        case _:
            return {"error": {"code": -32601, "message": "not offered by this client"}}


def registered_methods(params: object) -> Sequence[str]:
    found = params.get("registrations") if is_object(params) else None
    methods = [one.get("method") for one in found if is_object(one)] if is_list(found) else []
    return [method for method in methods if isinstance(method, str) and len(method) <= _MOST_NAME]


def encoding(offered: object) -> Encoding:
    """Return the position encoding; the protocol's default is UTF-16."""
    return _ENCODINGS.get(str(offered), "utf-16")
