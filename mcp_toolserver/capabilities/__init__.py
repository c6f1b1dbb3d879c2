"""What a tool may ask of the host, what each costs, and the shapes that cross that line.

A tool declares its `needs`; it gets a runtime with those and nothing else. The implementations live in
`runtime/` and `stores/`; this package knows no operating system.
"""

from mcp_toolserver.capabilities.calls import Report, Scope, Spill
from mcp_toolserver.capabilities.catalogue import Catalogue, ToolCard
from mcp_toolserver.capabilities.clock import Clock
from mcp_toolserver.capabilities.clones import Cloned, CloneQuery, Clones
from mcp_toolserver.capabilities.containers import Contained, Containers
from mcp_toolserver.capabilities.desktop import Desktop
from mcp_toolserver.capabilities.files import (
    CanonicalPath,
    Contents,
    EntryKind,
    FileChange,
    Files,
    FolderContent,
    FolderEntry,
    FolderQuery,
    Written,
)
from mcp_toolserver.capabilities.git import (
    BlameQuery,
    DiffForm,
    DiffQuery,
    Git,
    GitBranch,
    GitChange,
    GitCommit,
    GitHistory,
    GitLine,
    GitOverview,
    GitState,
    GitText,
    HistoryQuery,
    ShowForm,
    ShowQuery,
)
from mcp_toolserver.capabilities.human import Answers, Ask, Choice, Question, Tell
from mcp_toolserver.capabilities.kept import (
    Preference,
    Preferences,
    Todo,
    TodoChange,
    TodoList,
    TodoPriority,
    Todos,
    TodoStatus,
)
from mcp_toolserver.capabilities.languages import CodeAnswer, CodeOperation, CodePlace, CodeQuery, Languages
from mcp_toolserver.capabilities.origin import Origin
from mcp_toolserver.capabilities.prices import PRICES, Capability, Permission, Prices
from mcp_toolserver.capabilities.processes import Command, Jobs, JobState, Processes
from mcp_toolserver.capabilities.search import (
    FileQuery,
    FoundFiles,
    FoundLines,
    LineQuery,
    Search,
    SearchMode,
)
from mcp_toolserver.capabilities.sessions import Evaluation, Language, Sessions, Snippet
from mcp_toolserver.capabilities.web import (
    Fetch,
    Send,
    WebAnswer,
    WebHit,
    WebHits,
    WebQuery,
    WebRead,
    WebSend,
)

__all__ = [
    "PRICES",
    "Answers",
    "Ask",
    "BlameQuery",
    "CanonicalPath",
    "Capability",
    "Catalogue",
    "Choice",
    "Clock",
    "CloneQuery",
    "Cloned",
    "Clones",
    "CodeAnswer",
    "CodeOperation",
    "CodePlace",
    "CodeQuery",
    "Command",
    "Contained",
    "Containers",
    "Contents",
    "Desktop",
    "DiffForm",
    "DiffQuery",
    "EntryKind",
    "Evaluation",
    "Fetch",
    "FileChange",
    "FileQuery",
    "Files",
    "FolderContent",
    "FolderEntry",
    "FolderQuery",
    "FoundFiles",
    "FoundLines",
    "Git",
    "GitBranch",
    "GitChange",
    "GitCommit",
    "GitHistory",
    "GitLine",
    "GitOverview",
    "GitState",
    "GitText",
    "HistoryQuery",
    "JobState",
    "Jobs",
    "Language",
    "Languages",
    "LineQuery",
    "Origin",
    "Permission",
    "Preference",
    "Preferences",
    "Prices",
    "Processes",
    "Question",
    "Report",
    "Scope",
    "Search",
    "SearchMode",
    "Send",
    "Sessions",
    "ShowForm",
    "ShowQuery",
    "Snippet",
    "Spill",
    "Tell",
    "Todo",
    "TodoChange",
    "TodoList",
    "TodoPriority",
    "TodoStatus",
    "Todos",
    "ToolCard",
    "WebAnswer",
    "WebHit",
    "WebHits",
    "WebQuery",
    "WebRead",
    "WebSend",
    "Written",
]
