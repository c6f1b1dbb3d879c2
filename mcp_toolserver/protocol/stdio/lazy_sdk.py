"""Imports the SDK's `Server` quickly, because a stdio client waits for the start. Measured, the start up to
the server's own imports takes 550 ms of the processor with both of the following, 625 ms with the first only,
and 700 ms with neither.

* `mcp/__init__` and `mcp/server/__init__` do not run. They only gather names from their modules, and import
  the client, `MCPServer` and their libraries.
* Pydantic builds the models of the protocol on first use. Most are never used.
"""

import importlib
import importlib.util
import sys

from pydantic import BaseModel


def load() -> None:
    """Import `Server`, unless the SDK is already imported."""
    if "mcp" in sys.modules:
        return
    _add_package("mcp")
    _add_package("mcp.server")
    # A setting of every model of pydantic, as the SDK's have no common base class. It ends with the import.
    BaseModel.model_config["defer_build"] = True
    try:
        importlib.import_module("mcp.server.lowlevel.server")
    finally:
        del BaseModel.model_config["defer_build"]


def _add_package(name: str) -> None:
    """Register a package whose `__init__` runs when it is first asked for a name that it does not have."""
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.loader is not None
    package = importlib.util.module_from_spec(spec)
    run = spec.loader.exec_module

    def run_init(attribute: str) -> object:
        # Python looks up names like `__wrapped__` on any object.
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        del vars(package)["__getattr__"]
        run(package)
        return getattr(package, attribute)

    vars(package)["__getattr__"] = run_init
    sys.modules[name] = package
    outer, _, own = name.rpartition(".")
    if outer:
        setattr(sys.modules[outer], own, package)
