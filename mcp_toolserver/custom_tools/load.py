"""Tools of the operator's own: from Python files, and from installed packages that offer some.

Their code runs in the server's process, so whoever can change it can do all that the server can. It is taken
only when the operator names it, and only from where no tool of this server can write.
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

import anyio

from mcp_toolserver.capabilities.prices import PRICES
from mcp_toolserver.errors import RegistrationError, SettingsError
from mcp_toolserver.library.declared import check_names
from mcp_toolserver.library.entry import NEEDS, TOOLSET, as_entry
from mcp_toolserver.library.values import Tool
from mcp_toolserver.registry import Entry
from mcp_toolserver.runtime.beneath import below
from mcp_toolserver.spec import Forward, ToolSpec

GROUP = "mcp_toolserver.tools"
"""The group of entry points under which a package offers tools."""

T = TypeVar("T")

_MEMBERS = ("name", "description", "input_schema", "execute", "check_permissions", "is_read_only")
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_MOST_BYTES = 10 * 1024 * 1024


def own_tools(files: Sequence[str], packages: Sequence[str], roots: Sequence[str]) -> tuple[Entry, ...]:
    """The tools of these files and packages, in that order.

    Raises:
        SettingsError: one cannot be loaded, lies inside a root, or offers what is no tool.
    """
    places = tuple(map(os.path.realpath, roots))
    # What is printed meanwhile must not reach a client that waits for messages.
    with redirect_stdout(sys.stderr):
        offers = [
            (f"the tool file {path}", _of_file(path, f"mcp_toolserver_own_{number}"))
            for number, path in enumerate(files)
        ]
        offers += [(f"the tool package {name}", _of_package(name, places)) for name in packages]
        alone = anyio.Lock()
        return tuple(entry for source, offer in offers for entry in _entries(source, offer, alone))


def _of_file(path: str, name: str) -> object:
    """What a file assigns to `TOOLS`, or to `TOOL`; `name` is that of its module."""
    what = f"the tool file {path}"
    text = _text(path)
    module = ModuleType(name)
    module.__file__ = path
    # Models and dataclasses look their annotations up by the name of their module.
    sys.modules[name] = module

    def run() -> None:
        exec(compile(text, path, "exec"), module.__dict__)  # noqa: S102  the operator named this file

    _loaded(what, run)
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
            if why := _unfit(found):
                raise SettingsError(f"the tool file {path} {why}")
            return file.read()
    except OSError as error:
        raise SettingsError(f"the tool file {path} cannot be read ({error.strerror})") from None


def _unfit(found: os.stat_result) -> str:
    if not stat.S_ISREG(found.st_mode):
        return "is not a regular file"
    if found.st_size > _MOST_BYTES:
        return "is too long to be one"
    if os.name == "posix" and (found.st_mode & _OTHERS_WRITE or found.st_uid not in (0, os.geteuid())):
        return "must belong to you, and nobody else may be able to write it (chmod go-w)"
    return ""


def _of_package(name: str, places: Sequence[str]) -> object:
    """What the one entry point of this name is."""
    what = f"the tool package {name}"
    found = tuple(entry_points(group=GROUP, name=name))
    if len(found) != 1:
        there = ", ".join(sorted(point.name for point in entry_points(group=GROUP))) or "none"
        raise SettingsError(
            f"{len(found)} installed packages offer tools as {name!r}, not one; there are: {there}"
        )
    for origin in _loaded(what, lambda: tuple(_origins(found[0]))):
        if any(below(place, os.path.realpath(origin)) is not None for place in places):
            raise SettingsError(f"{what} lies inside a root, at {origin}, where tools could change it")
    return _loaded(what, found[0].load)


def _origins(point: EntryPoint) -> Iterator[str]:
    """Where an entry point and the modules on the way to it lie; the ones above it are imported for that."""
    yield from (str(dist.locate_file("")) for dist in (point.dist,) if dist is not None)
    for module in accumulate(point.module.split("."), "{}.{}".format):
        spec = find_spec(module)
        if spec is None:
            raise ModuleNotFoundError(f"there is no module {module}")
        yield from (place for place in (spec.origin, *(spec.submodule_search_locations or ())) if place)


def _loaded(what: str, load: Callable[[], T]) -> T:
    try:
        return load()
    except (Exception, SystemExit) as error:
        raise SettingsError(f"{what} cannot be loaded: {type(error).__name__}: {error}") from error


def _entries(source: str, offer: object, alone: anyio.Lock) -> Iterator[Entry]:
    for item in offer if _is_several(offer) else (offer,):
        try:
            if isinstance(item, ToolSpec):
                yield _of_spec(item)
            elif _is_tool(item):
                yield as_entry(item, alone)
            else:
                raise RegistrationError(f"{type(item).__name__} is no tool")
        except RegistrationError as error:
            raise SettingsError(f"{source}: {error}") from None


def _is_several(offer: object) -> TypeGuard[Iterable[object]]:
    return isinstance(offer, Iterable)


def _is_tool(item: object) -> TypeGuard[Tool]:
    return all(hasattr(item, member) for member in _MEMBERS)


def _of_spec(spec: ToolSpec) -> Entry:
    """A tool written as the server's own are."""
    check_names(spec.name, spec.description)
    if isinstance(spec.run, Forward):
        raise RegistrationError(f"{spec.name}: only the server's own tools call others")
    dear = sorted(need.value for need in spec.needs if PRICES[need] > spec.permission)
    if dear:
        raise RegistrationError(f"{spec.name}: {spec.permission.flag} does not cover {', '.join(dear)}")
    return Entry(replace(spec, needs=spec.needs | NEEDS), TOOLSET)
