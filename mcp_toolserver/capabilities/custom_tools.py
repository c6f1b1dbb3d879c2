"""The context in which the server calls a user's own code."""

from pydantic import BaseModel, ConfigDict


class ToolContext(BaseModel):
    """The context of a call. Immutable."""

    model_config = ConfigDict(frozen=True, defer_build=True)

    working_directory: str
    """Absolute path; in the server the first root, empty where the client left none."""
    session_id: str
