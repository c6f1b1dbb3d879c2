"""Imports the part of the SDK that serving over standard input needs.

A client waits for every millisecond of the start, and half of what `mcp.server.lowlevel` imports has nothing
to do with a server on stdio. `load` brings it in without that, so that later imports of `mcp` find it:

* `mcp/__init__` and `mcp/server/__init__` are not run: they bring the client, `MCPServer`, HTTP and all their
  libraries. Both packages are there, unrun; the first name asked of one that it does not have runs it after
  all.
* The module of `Server` imports HTTP, routing and authorization for the one method that serves them. It gets
  stand-ins under those names, and nobody else does: what imports `starlette` later gets the real one.
* The models of the protocol are declared, but built when first used; most never are.
* The models of its two wire formats are not even declared until a message of that format comes: a connection
  on stdio speaks one of them.

Each of these is worth a tenth of the start or more. Should a later SDK not allow it, `load` takes everything
back, and the SDK is imported as it asks to be.
"""

import importlib
import importlib.util
import logging
import sys
import types
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Self

import pydantic
from pydantic import BaseModel, ConfigDict, TypeAdapter

log = logging.getLogger(__name__)

_UNRUN = ("mcp", "mcp.server")
"""Packages whose `__init__` only gathers names out of their modules; outer ones first."""

_WITHHELD = frozenset(
    {
        "starlette",
        "mcp.server.auth",
        "mcp.server.streamable_http",
        "mcp.server.streamable_http_manager",
        "mcp.server.transport_security",
    }
)
"""Modules that `_SERVER` takes names from, for HTTP alone; with all that lies in them."""

_SERVER = "mcp.server.lowlevel.server"

_TABLES = "mcp_types.methods"
"""Says which model of which format each method has."""

_FORMATS = ("mcp_types._v2025_11_25", "mcp_types._v2026_07_28")
"""The models of the two formats, which only `_TABLES` names."""


def load() -> None:
    """Import what a server on stdio needs of the SDK. Once the SDK is imported, there is nothing to gain.

    In this process `Server.streamable_http_app` cannot be called.
    """
    if "mcp" in sys.modules:
        return
    try:
        with _deferred_models(), _withheld():
            for name in _UNRUN:
                _leave_unrun(name)
            with _undeclared_formats():
                importlib.import_module(_TABLES)
            importlib.import_module(_SERVER)
    except (ImportError, AttributeError, TypeError, NameError) as error:
        log.warning("the SDK is imported the slow way: %s", error)
        _forget()


class _Unrun(ModuleType):
    """A package whose modules can be imported before its own code has run."""

    def __init__(self, spec: ModuleSpec) -> None:
        super().__init__(spec.name)
        vars(self).update(vars(importlib.util.module_from_spec(spec)))
        self._loader = spec.loader

    def __getattr__(self, name: str) -> object:
        # Python looks for names like `__wrapped__` on anything; those are no reason to run it.
        if name.startswith("__") or (loader := vars(self).pop("_loader", None)) is None:
            raise _absent(self, name)
        loader.exec_module(self)
        return getattr(self, name)


def _leave_unrun(name: str) -> None:
    spec = importlib.util.find_spec(name)
    if spec is None:
        raise ImportError(f"no package {name}", name=name)
    sys.modules[name] = package = _Unrun(spec)
    outer, _, own = name.rpartition(".")
    if outer:
        setattr(sys.modules[outer], own, package)


class _StandIn:
    """For any name of a withheld module. It can be handed around, and that is all."""


class _StandIns(ModuleType):
    """A withheld module, and package of more."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__ = []

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise _absent(self, name)
        return _StandIn()


class _Finder(MetaPathFinder, Loader):
    """Answers for the withheld modules, before any other finder."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None, /
    ) -> ModuleSpec | None:
        is_withheld = any(fullname == name or fullname.startswith(f"{name}.") for name in _WITHHELD)
        return ModuleSpec(fullname, self, is_package=True) if is_withheld else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _StandIns(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """There is no code."""


def _absent(module: ModuleType, name: str) -> AttributeError:
    return AttributeError(f"module {module.__name__!r} has no attribute {name!r}", name=name, obj=module)


@contextmanager
def _withheld() -> Generator[None]:
    finder = _Finder()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name, module in sys.modules.items() if isinstance(module, _StandIns)]:
            del sys.modules[name]
            package, _, own = name.rpartition(".")
            vars(sys.modules.get(package, sys)).pop(own, None)


@contextmanager
def _replaced(module: ModuleType, name: str, value: object) -> Generator[None]:
    before = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, before)


@contextmanager
def _deferred_models() -> Generator[None]:
    """Every model that is declared meanwhile is built when it is first used."""
    BaseModel.model_config["defer_build"] = True
    try:
        with _replaced(pydantic, "TypeAdapter", _Adapters()):
            yield
    finally:
        del BaseModel.model_config["defer_build"]


class _Adapters:
    """In place of `TypeAdapter`: makes adapters that are built when first used.

    A union of models has no configuration of its own to defer it, as a model has.
    """

    def __getitem__(self, _: object) -> Self:
        return self

    def __call__(self, of: Any) -> TypeAdapter[Any]:
        return TypeAdapter(of, config=None if isinstance(of, type) else ConfigDict(defer_build=True))


@dataclass(frozen=True)
class _Named:
    """A model of a format that is not there yet."""

    module: str
    name: str

    def found(self) -> object:
        """The model itself."""
        if self.module not in sys.modules:
            with _deferred_models():
                importlib.import_module(self.module)
        return getattr(sys.modules[self.module], self.name)


class _Format(ModuleType):
    """A format whose models are only named."""

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise _absent(self, name)
        return _Named(self.__name__, name)


class _Rows(dict[Any, Any]):
    """A table whose models are looked up when one is asked for."""

    def __getitem__(self, key: object) -> object:
        row = super().__getitem__(key)
        if isinstance(row, _Named):
            row = self[key] = row.found()
        return row


@contextmanager
def _undeclared_formats() -> Generator[None]:
    package = importlib.import_module("mcp_types")
    for name in _FORMATS:
        if importlib.util.find_spec(name) is None:
            raise ImportError(f"no module {name}", name=name)
        sys.modules[name] = _Format(name)
    try:
        with _replaced(types, "MappingProxyType", _Rows):
            yield
    finally:
        for name in _FORMATS:
            del sys.modules[name]
            vars(package).pop(name.rpartition(".")[2], None)


def _forget() -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] in ("mcp", "mcp_types")]:
        del sys.modules[name]
