"""What a language server is told of us at the start, and what it gets when it asks."""

from collections.abc import Sequence

from mcp_toolserver.runtime.lsp.talk import Unanswerable
from mcp_toolserver.runtime.lsp.uris import to_uri
from mcp_toolserver.runtime.sandbox.wire import is_list, is_object
from mcp_toolserver.text.code_positions import Encoding

_MOST_SETTINGS = 1_000
"""That are answered in one go."""

_LINKS = {"dynamicRegistration": False, "linkSupport": True}
_KINDS = {"valueSet": list(range(1, 27))}
_TEXT = {"contentFormat": ["markdown", "plaintext"]}

CAPABILITIES: dict[str, object] = {
    "general": {"positionEncodings": ["utf-32", "utf-8", "utf-16"]},
    "window": {"workDoneProgress": True},
    "workspace": {
        "applyEdit": False,
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
        "diagnostic": {"dynamicRegistration": True},
        "publishDiagnostics": {"versionSupport": True},
    },
}
"""Nothing that would have a server change anything."""

_REFRESHES = frozenset(
    f"workspace/{what}/refresh"
    for what in ("codeLens", "semanticTokens", "inlayHint", "inlineValue", "diagnostic", "foldingRange")
)


def introduction(folder: str) -> dict[str, object]:
    """The parameters of `initialize`."""
    uri = to_uri(folder)
    return {
        # It has process numbers of its own, in which ours means somebody else or nobody.
        "processId": None,
        "clientInfo": {"name": "mcp-toolserver"},
        "rootUri": uri,
        "rootPath": folder,
        "workspaceFolders": [{"uri": uri, "name": folder.rpartition("/")[2] or folder}],
        "capabilities": CAPABILITIES,
    }


def answered(folder: str, method: str, params: object) -> object:
    """What a server gets that asks.

    Raises:
        Unanswerable: it asks for what no server needs.
    """
    match method:
        case "workspace/configuration":
            items = params.get("items") if is_object(params) else None
            return [None] * min(len(items), _MOST_SETTINGS) if is_list(items) else []
        case "workspace/workspaceFolders":
            return introduction(folder)["workspaceFolders"]
        case "workspace/applyEdit":
            return {"applied": False, "failureReason": "this client changes nothing"}
        case "client/registerCapability" | "client/unregisterCapability" | "window/workDoneProgress/create":
            return None
        case "window/showMessageRequest":
            return None
        case _ if method in _REFRESHES:
            return None
        case _:
            raise Unanswerable


def registered(params: object) -> Sequence[str]:
    """The methods that a server says it answers from now on."""
    found = params.get("registrations") if is_object(params) else None
    methods = [one.get("method") for one in found if is_object(one)] if is_list(found) else []
    return [method for method in methods if isinstance(method, str)]


def encoding(offered: object) -> Encoding:
    """How a server counts along a line; UTF-16 is what it means when it says nothing."""
    match offered:
        case "utf-8":
            return "utf-8"
        case "utf-32":
            return "utf-32"
        case _:
            return "utf-16"
