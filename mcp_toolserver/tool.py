"""Everything needed to write a tool: `Args`, the runtime `rt`, `Output`, `ToolSpec`.

A tool turns arguments into capability calls and what came back into text. It does not check paths, ask
permission, set deadlines, cut output or catch `Exception`: the dispatcher and the capabilities do.

The values of all capabilities that tools use are handed on as they are, so a new one needs no entry here.
"""

from typing import Annotated, Literal

from pydantic import AfterValidator as AfterValidator
from pydantic import BeforeValidator as BeforeValidator
from pydantic import Field as Field
from pydantic import InstanceOf as InstanceOf
from pydantic import JsonValue as JsonValue
from pydantic import StringConstraints
from pydantic import WithJsonSchema as WithJsonSchema
from pydantic import model_serializer as model_serializer
from pydantic import model_validator as model_validator
from pydantic.json_schema import SkipJsonSchema as SkipJsonSchema

from mcp_toolserver.capabilities.agents import *
from mcp_toolserver.capabilities.call_scope import *
from mcp_toolserver.capabilities.code import *
from mcp_toolserver.capabilities.cron import *
from mcp_toolserver.capabilities.desktop import *
from mcp_toolserver.capabilities.files import *
from mcp_toolserver.capabilities.files import CanonicalPath
from mcp_toolserver.capabilities.git import *
from mcp_toolserver.capabilities.permissions import *
from mcp_toolserver.capabilities.processes import *
from mcp_toolserver.capabilities.requirements import RequirementSet as RequirementSet
from mcp_toolserver.capabilities.search import *
from mcp_toolserver.capabilities.skills import *
from mcp_toolserver.capabilities.stored import *
from mcp_toolserver.capabilities.tasks import *
from mcp_toolserver.capabilities.user import *
from mcp_toolserver.capabilities.web import *
from mcp_toolserver.errors import *
from mcp_toolserver.text.file_names import check_spelling
from mcp_toolserver.text.json_values import is_list
from mcp_toolserver.text.web.headers import sendable
from mcp_toolserver.text.web.urls import canonical_url
from mcp_toolserver.tool_spec import *
from mcp_toolserver.tool_spec import Limits, PathMark, UrlMark

WorkspacePath = Annotated[
    CanonicalPath,
    StringConstraints(min_length=1, max_length=4096),
    AfterValidator(check_spelling),
    PathMark(),
]
"""A path argument: relative to the first root, or absolute in any root. Canonical when the tool sees it."""

ROOT = CanonicalPath(".")
"""The first root."""


def _several(value: object) -> object:
    """JSON has lists only, and models send a single path without one."""
    if isinstance(value, str):
        return (value,)
    return tuple(value) if is_list(value) else value


WorkspacePaths = Annotated[tuple[WorkspacePath, ...], BeforeValidator(_several), PathMark()]
"""Several of them in one argument, a list; a single one may come without."""


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be empty")
    return text


NotBlank = AfterValidator(_not_blank)
"""Marks text that must have more than white space."""

UNTIL_ANSWERED = Limits(deadline=3_660.0)
"""For a tool that asks the user; how long an answer may really take is the operator's to say, to an hour."""

WebUrl = Annotated[str, StringConstraints(min_length=1), AfterValidator(canonical_url), UrlMark()]
"""An address argument: http or https, canonical when the tool sees it."""

WebHeaders = Annotated[dict[str, str], AfterValidator(sendable)]
"""Headers of a request, names in lower case when the tool sees them."""

WebMethod = Literal["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD"]
