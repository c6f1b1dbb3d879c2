"""Everything needed to write a tool: `Args`, the runtime `rt`, `Output`, `ToolSpec`.

A tool turns arguments into capability calls and what came back into text. It does not check paths, ask
permission, set deadlines, cut output or catch `Exception`: the dispatcher and the capabilities do.
"""

from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    JsonValue,
    StringConstraints,
    model_validator,
)

from mcp_toolserver.capabilities.agents import AgentState, AgentTask
from mcp_toolserver.capabilities.call_scope import SavedOutput
from mcp_toolserver.capabilities.catalogue import ToolCard
from mcp_toolserver.capabilities.code import (
    CodeEdit,
    CodeEditOperation,
    CodeEditQuery,
    CodeOperation,
    CodeQuery,
)
from mcp_toolserver.capabilities.containers import Contained
from mcp_toolserver.capabilities.cron import Job, NewSchedule, Schedule
from mcp_toolserver.capabilities.desktop import Note
from mcp_toolserver.capabilities.files import (
    CanonicalPath,
    Contents,
    FileChange,
    FolderContent,
    FolderEntry,
    FolderQuery,
    Previous,
    Written,
)
from mcp_toolserver.capabilities.git import (
    BlameQuery,
    DiffQuery,
    FileVersion,
    GitBranch,
    GitChange,
    GitCommit,
    GitLine,
    GitOverview,
    GitState,
    GitText,
    HistoryQuery,
    ShowForm,
    ShowQuery,
    VersionQuery,
)
from mcp_toolserver.capabilities.git_changes import BranchChange, BranchQuery, CommitQuery, Committed
from mcp_toolserver.capabilities.git_clone import Cloned, CloneQuery
from mcp_toolserver.capabilities.permissions import Capability, HostFacts, Permission
from mcp_toolserver.capabilities.processes import Command, JobQuery, JobState
from mcp_toolserver.capabilities.repl import Evaluation, Language, Snippet
from mcp_toolserver.capabilities.search import (
    FileQuery,
    FoundFiles,
    FoundLines,
    LineQuery,
    SearchMode,
)
from mcp_toolserver.capabilities.skills import SavedSkill, SkillCard, SkillIndex
from mcp_toolserver.capabilities.stored import (
    Preference,
    Todo,
    TodoChange,
    TodoList,
    TodoPriority,
    TodoStatus,
)
from mcp_toolserver.capabilities.tasks import NewTask, TaskChange, TaskDetail, TaskSummary
from mcp_toolserver.capabilities.teams import EVERYBODY, LEADER, Team
from mcp_toolserver.capabilities.user import Answers, Choice, Question
from mcp_toolserver.capabilities.web import (
    WebAnswer,
    WebHit,
    WebHits,
    WebQuery,
    WebRead,
    WebSend,
)
from mcp_toolserver.capabilities.worktrees import (
    EnteredWorktree,
    ExitedWorktree,
    ExitQuery,
    WorktreeAction,
    WorktreeQuery,
)
from mcp_toolserver.errors import Conflict, Denied, InvalidInput, NotFound, TimedOut, ToolError, Unavailable
from mcp_toolserver.text.json_values import is_list
from mcp_toolserver.text.path_syntax import check_spelling
from mcp_toolserver.text.web.headers import sendable
from mcp_toolserver.text.web.urls import canonical_url
from mcp_toolserver.tool_spec import (
    Alias,
    Args,
    Forward,
    Image,
    Limits,
    Output,
    PathMark,
    PathsMark,
    Profile,
    Record,
    Runtime,
    ToolSpec,
    UrlMark,
)

__all__ = [
    "EVERYBODY",
    "LEADER",
    "AgentState",
    "AgentTask",
    "Alias",
    "Answers",
    "Args",
    "BlameQuery",
    "BranchChange",
    "BranchQuery",
    "CanonicalPath",
    "Capability",
    "Choice",
    "CloneQuery",
    "Cloned",
    "CodeEdit",
    "CodeEditOperation",
    "CodeEditQuery",
    "CodeOperation",
    "CodeQuery",
    "Command",
    "CommitQuery",
    "Committed",
    "Conflict",
    "Contained",
    "Contents",
    "Denied",
    "DiffQuery",
    "EnteredWorktree",
    "Evaluation",
    "ExitQuery",
    "ExitedWorktree",
    "Field",
    "FileChange",
    "FileQuery",
    "FileVersion",
    "FolderContent",
    "FolderEntry",
    "FolderQuery",
    "Forward",
    "FoundFiles",
    "FoundLines",
    "GitBranch",
    "GitChange",
    "GitCommit",
    "GitLine",
    "GitOverview",
    "GitState",
    "GitText",
    "HistoryQuery",
    "HostFacts",
    "Image",
    "InvalidInput",
    "Job",
    "JobQuery",
    "JobState",
    "JsonValue",
    "Language",
    "Limits",
    "LineQuery",
    "NewSchedule",
    "NewTask",
    "NotFound",
    "Note",
    "Output",
    "PathsMark",
    "Permission",
    "Preference",
    "Previous",
    "Profile",
    "Question",
    "Record",
    "Runtime",
    "SavedOutput",
    "SavedSkill",
    "Schedule",
    "SearchMode",
    "ShowForm",
    "ShowQuery",
    "SkillCard",
    "SkillIndex",
    "Snippet",
    "TaskChange",
    "TaskDetail",
    "TaskSummary",
    "Team",
    "TimedOut",
    "Todo",
    "TodoChange",
    "TodoList",
    "TodoPriority",
    "TodoStatus",
    "ToolCard",
    "ToolError",
    "ToolSpec",
    "Unavailable",
    "UrlMark",
    "VersionQuery",
    "WebAnswer",
    "WebHeaders",
    "WebHit",
    "WebHits",
    "WebMethod",
    "WebQuery",
    "WebRead",
    "WebSend",
    "WebUrl",
    "WorkspacePath",
    "WorkspacePaths",
    "WorktreeAction",
    "WorktreeQuery",
    "Written",
    "model_validator",
]


WorkspacePath = Annotated[
    CanonicalPath,
    StringConstraints(min_length=1, max_length=4096),
    AfterValidator(check_spelling),
    PathMark(),
]
"""A path argument: relative to the first root, or absolute in any root. Canonical when the tool sees it."""


def _several(value: object) -> object:
    """JSON has lists only, and models send a single path without one."""
    if isinstance(value, str):
        return (value,)
    return tuple(value) if is_list(value) else value


WorkspacePaths = Annotated[tuple[WorkspacePath, ...], BeforeValidator(_several), PathMark()]
"""Several of them in one argument, a list; a single one may come without."""


WebUrl = Annotated[str, StringConstraints(min_length=1), AfterValidator(canonical_url), UrlMark()]
"""An address argument: http or https, canonical when the tool sees it."""

WebHeaders = Annotated[dict[str, str], AfterValidator(sendable)]
"""Headers of a request, names in lower case when the tool sees them."""

WebMethod = Literal["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD"]
