"""The stand-in for `sandbox-exec`: it reads the profile strictly and runs the program with `stand_in.c`.

Statuses and messages are those that users of `sandbox-exec` report: 65 for a profile that does not compile
("unbound variable: setenv at <input string>, line 5"), 71 for a second sandbox inside one ("sandbox_apply:
Operation not permitted") and for a program that cannot be started. A program that may not read the folder
`/` is aborted, as the loader of macOS 15 does.
"""

import getopt
import hashlib
import os
import secrets
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

from tests.darwin import mutations, rule_table, sbpl

USAGE = 64
WRONG_PROFILE = 65
NOT_STARTED = 71

TABLE = "SEATBELT_STAND_IN_TABLE"
LABEL = "SEATBELT_STAND_IN_LABEL"
COMPILER = "SEATBELT_STAND_IN_COMPILER"
PROGRAMS = "SEATBELT_STAND_IN_PROGRAMS"


@dataclass(frozen=True, kw_only=True)
class _Line:
    profile: str
    parameters: Mapping[str, str]
    argv: Sequence[str]
    only_table: bool


def main(library: str, tables: str, mutation: str = "") -> NoReturn:
    """Run `sandbox-exec`.

    Args:
        library: The compiled stand-in.
        tables: The folder that tables of rules are written to. A file `mutated` in it says that the mutation
            changed a profile.
        mutation: One of `mutations.MUTATIONS` that is made first, or nothing.
    """
    line = _read(sys.argv[1:])
    if mutation:
        line = _mutated(line, mutation, tables)
    try:
        profile = sbpl.compile_profile(line.profile, line.parameters)
    except sbpl.ProfileError as error:
        _fail(WRONG_PROFILE, str(error))
    table = _write(rule_table.encode(profile), tables)
    if line.only_table:
        print(table)
        sys.exit(0)
    if TABLE in os.environ:
        _fail(NOT_STARTED, "sandbox_apply: Operation not permitted")
    if not profile.allows(sbpl.Request(operation="file-read-data", path="/", vnode_type="DIRECTORY")):
        signal.raise_signal(signal.SIGABRT)
    own = {"LD_PRELOAD": library, TABLE: table, LABEL: f"{os.getpid()}-{secrets.token_hex(8)}"}
    own[PROGRAMS] = str(Path(tables).with_name("programs"))
    _exec(profile, line.argv, {**os.environ, **own})


def _mutated(line: _Line, mutation: str, tables: str) -> _Line:
    text, parameters = mutations.mutated(mutation, line.profile, line.parameters)
    if (text.split(), parameters) != ("\n".join(mutations.pieces(line.profile)).split(), line.parameters):
        Path(tables, "mutated").touch()
    return replace(line, profile=text, parameters=parameters)


def _read(arguments: Sequence[str]) -> _Line:
    try:
        options, argv = getopt.getopt(arguments, "f:n:p:D:", ["table"])
    except getopt.GetoptError as error:
        _fail(USAGE, str(error))
    texts = [value for name, value in options if name == "-p"]
    texts += [Path(value).read_text(encoding="utf-8") for name, value in options if name == "-f"]
    only_table = ("--table", "") in options
    named = [value for name, value in options if name == "-D"]
    if len(texts) != 1 or not (argv or only_table) or not all("=" in each for each in named):
        _fail(USAGE, "usage: sandbox-exec [-f file | -p profile] [-D name=value] command [argument ...]")
    pairs = (each.partition("=") for each in named)
    parameters = {name: value for name, _, value in pairs}
    return _Line(profile=texts[0], parameters=parameters, argv=argv, only_table=only_table)


def _write(table: str, folder: str) -> str:
    """The path of a file with this content, which is made where it is missing."""
    file = Path(folder, hashlib.sha256(table.encode()).hexdigest())
    if not file.exists():
        unfinished = file.with_name(f"{file.name}.{os.getpid()}")
        unfinished.write_text(table, encoding="utf-8")
        unfinished.rename(file)
    return str(file)


def _exec(profile: sbpl.Profile, argv: Sequence[str], environment: dict[str, str]) -> NoReturn:
    """Start the program in PATH that the profile lets start."""
    places = [""] if "/" in argv[0] else os.environ.get("PATH", "/bin:/usr/bin").split(":")
    candidates = (os.path.join(place, argv[0]) for place in places)
    found = next((file for file in candidates if os.access(file, os.X_OK)), argv[0])
    real = os.path.realpath(found)
    if not profile.allows(sbpl.Request(operation="process-exec*", path=real)):
        _fail(NOT_STARTED, f"execvp() of '{argv[0]}' failed: Operation not permitted")
    try:
        os.execve(found, list(argv), environment)
    except OSError as error:
        _fail(NOT_STARTED, f"execvp() of '{argv[0]}' failed: {error.strerror}")


def _fail(status: int, message: str) -> NoReturn:
    sys.stderr.write(f"sandbox-exec: {message}\n")
    sys.exit(status)
