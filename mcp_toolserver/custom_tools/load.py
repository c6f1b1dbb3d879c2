"""Loads the operator's tools from Python files and installed packages.

Their code runs in the server's process, so whoever can change it controls the server. It is loaded only if
the operator names it, and only from where no tool of this server can write.
"""

import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from itertools import accumulate
from types import ModuleType
from typing import TypeGuard, TypeVar

from mcp_toolserver.custom_tools.build import MEMBERS, NEEDS, TOOLSET, as_entry, check_names
from mcp_toolserver.custom_tools.tool import Tool
from mcp_toolserver.errors import RegistrationError, SettingsError
from mcp_toolserver.pipeline.registry import Entry
from mcp_toolserver.runtime.files.path_resolver import relative_to
from mcp_toolserver.tool_spec import Forward, ToolSpec

GROUP = "mcp_toolserver.tools"
"""The entry point group for packages with tools."""

T = TypeVar("T")

_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_MAX_BYTES = 10 * 1024 * 1024


def load_custom_tools(
    files: Sequence[str], packages: Sequence[str], roots: Sequence[str]
) -> tuple[Entry, ...]:
    """Return the tools of these files and packages, in order.

    Raises:
        SettingsError: a source cannot be loaded, lies inside a root, or contains something else.
    """
    real_roots = tuple(map(os.path.realpath, roots))
    # Output of the code must not reach the client's message stream.
    with redirect_stdout(sys.stderr):
        offers = [
            (f"the tool file {path}", _load_file(path, f"mcp_toolserver_own_{number}"))
            for number, path in enumerate(files)
        ]
        offers += [(f"the tool package {name}", _load_package(name, real_roots)) for name in packages]
        return tuple(entry for source, offer in offers for entry in _entries(source, offer))


def _load_file(path: str, name: str) -> object:
    """Run a file as module `name` and return its `TOOLS` or `TOOL`."""
    what = f"the tool file {path}"
    text = _text(path)
    module = ModuleType(name)
    module.__file__ = path
    # Models and dataclasses resolve annotations through the module's name.
    sys.modules[name] = module

    def run() -> None:
        exec(compile(text, path, "exec"), module.__dict__)  # noqa: S102  the operator named this file

    _load(what, run)
    for variable in ("TOOLS", "TOOL"):
        if variable in module.__dict__:
            return module.__dict__[variable]
    raise SettingsError(f"{what} assigns nothing to TOOLS")


def _text(path: str) -> bytes:
    try:
        # Without O_NONBLOCK, opening a FIFO would wait for a writer; Windows has neither.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        with os.fdopen(descriptor, "rb") as file:
            found = os.fstat(descriptor)
            if why := _file_problem(found):
                raise SettingsError(f"the tool file {path} {why}")
            return file.read()
    except OSError as error:
        raise SettingsError(f"the tool file {path} cannot be read ({error.strerror})") from None


def _file_problem(found: os.stat_result) -> str:
    if not stat.S_ISREG(found.st_mode):
        return "is not a regular file"
    if found.st_size > _MAX_BYTES:
        return "is too large"
    if os.name == "posix" and (found.st_mode & _WRITABLE_BY_OTHERS or found.st_uid not in (0, os.geteuid())):
        return "must belong to you, and nobody else may be able to write it (chmod go-w)"
    return ""


def _load_package(name: str, real_roots: Sequence[str]) -> object:
    """Load the only entry point with this name."""
    what = f"the tool package {name}"
    found = tuple(entry_points(group=GROUP, name=name))
    if len(found) != 1:
        there = ", ".join(sorted(point.name for point in entry_points(group=GROUP))) or "none"
        raise SettingsError(
            f"{len(found)} installed packages offer tools as {name!r}, not one; there are: {there}"
        )
    for location in _load(what, lambda: tuple(_module_locations(found[0]))):
        if any(relative_to(place, os.path.realpath(location)) is not None for place in real_roots):
            raise SettingsError(f"{what} lies inside a root, at {location}, where tools could change it")
    return _load(what, found[0].load)


def _module_locations(point: EntryPoint) -> Iterator[str]:
    """Yield the locations of an entry point and its parent modules; finding them imports the parents."""
    yield from (str(dist.locate_file("")) for dist in (point.dist,) if dist is not None)
    for module in accumulate(point.module.split("."), "{}.{}".format):
        spec = find_spec(module)
        if spec is None:
            raise ModuleNotFoundError(f"there is no module {module}")
        yield from (place for place in (spec.origin, *(spec.submodule_search_locations or ())) if place)


def _load(what: str, load: Callable[[], T]) -> T:
    try:
        return load()
    except (Exception, SystemExit) as error:
        raise SettingsError(f"{what} cannot be loaded: {type(error).__name__}: {error}") from error


def _entries(source: str, offer: object) -> Iterator[Entry]:
    for item in offer if _is_several(offer) else (offer,):
        try:
            if isinstance(item, ToolSpec):
                yield _entry_of_spec(item)
            elif _is_tool(item):
                yield as_entry(item)
            else:
                raise RegistrationError(f"{type(item).__name__} is not a tool")
        except RegistrationError as error:
            raise SettingsError(f"{source}: {error}") from None


def _is_several(offer: object) -> TypeGuard[Iterable[object]]:
    return isinstance(offer, Iterable)


def _is_tool(item: object) -> TypeGuard[Tool]:
    return all(hasattr(item, member) for member in MEMBERS)


def _entry_of_spec(spec: ToolSpec) -> Entry:
    """Adapt a `ToolSpec`, the form of the server's own tools."""
    if isinstance(spec.run, Forward):
        raise RegistrationError(f"{spec.name}: only the server's own tools call others")
    check_names(spec.name, spec.description)
    if spec.subjects is None:
        raise RegistrationError(
            f"{spec.name}: give `subjects`, which return what rules match; () for nothing"
        )
    if spec.permission is None:
        raise RegistrationError(f"{spec.name}: give `permission`, which the code of the tool requires")
    uncovered = [need.label for need in spec.needs if need.permission > spec.permission]
    if uncovered:
        raise RegistrationError(
            f"{spec.name}: {spec.permission.flag} does not cover {', '.join(sorted(uncovered))}"
        )
    return Entry(replace(spec, needs=spec.needs | NEEDS), TOOLSET)
