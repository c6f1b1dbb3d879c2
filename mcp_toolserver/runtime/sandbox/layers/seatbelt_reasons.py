"""Why each rule of a Seatbelt profile exists, and the public source that it rests on.

Apple documents the language of profiles in outline only (sandbox-exec(1), sandbox_init(3)). The sources here
are policies that others run on macOS, what Apple publishes of its kernel, and reports of what macOS did. This
project never executed a rule on macOS; the self-test tries them at start (`seatbelt_selftest`).
"""

from collections.abc import Mapping
from dataclasses import dataclass

_CODEX = "OpenAI Codex, codex-rs/core/src/seatbelt_base_policy.sbpl"
_CHROMIUM = "Chromium, sandbox/policy/mac/common.sb"
_RUNTIME = "Anthropic sandbox-runtime, src/sandbox/macos-sandbox-utils.ts"
_NIX = "Nix, src/libstore/sandbox-defaults.sb"
_GUIDE = "Apple Sandbox Guide 1.0 (fG!, reverse.put.as, 2011)"
_MXC = "microsoft/mxc, pull request 749 (sockets are judged by their path)"


@dataclass(frozen=True, kw_only=True)
class Reason:
    """Why a rule exists."""

    why: str
    source: str


REASONS: Mapping[str, Reason] = {
    "language": Reason(why="The first form of every profile: the version of the language.", source=_GUIDE),
    "default": Reason(
        why="What no rule allows is denied: Apple events, opening applications, jobs of launchd, Mach "
        "services and their registration, IOKit, the keychain, the pasteboard, shared memory, hard links "
        "and clones, mounts, settings of the kernel, privileged operations. Of the rules that match, the "
        "last decides.",
        source=f"{_CODEX}; {_CHROMIUM}",
    ),
    "apple events": Reason(
        why="Stated although it is the default: an Apple event lets another application act.",
        source=_GUIDE,
    ),
    "explicit": Reason(
        why="Stated although it is the default, because the default was seen not to hold for some: on macOS "
        "26 a profile of `(deny default)` alone let a program read the environment of others.",
        source="Mozilla, security/sandbox/mac/SandboxPolicies.h (what the default does not include); "
        "nolabs-ai/nono, issue 1821; nubjs/nub, pull request 423",
    ),
    "programs": Reason(
        why="Commands run programs, which inherit the sandbox. No rule names a modifier that lifts it. macOS "
        "denies setuid programs in a sandbox by itself (forbidden-exec-sugid).",
        source=f"{_CODEX}; bazelbuild/bazel, issue 7448; nolabs-ai/nono, issue 1619",
    ),
    "own programs": Reason(
        why="A search runs one program, which may run nothing else.", source=f"{_CHROMIUM} (process-exec)"
    ),
    "shell": Reason(
        why="The broker starts a search through /bin/sh, which reports that the sandbox was entered. It "
        "is confined as the search is.",
        source=f"{_NIX} (/private/var/select/sh)",
    ),
    "processes": Reason(why="A shell starts processes; children inherit the sandbox.", source=_CODEX),
    "own processes": Reason(
        why="A program may signal and inspect the processes of its own sandbox, and no others. "
        "`(deny default)` leaves process-info* allowed, so a rule denies it.",
        source=f"{_CODEX}; {_RUNTIME}; a launcher's record of what macOS 15.7.9 refused",
    ),
    "code": Reason(
        why="Libraries are mapped as code. What may be mapped is what may be read.",
        source=f"{_CHROMIUM} (file-map-executable)",
    ),
    "system facts": Reason(
        why="Number of processors, sizes of pages, version of the system. Names that show other processes "
        "(kern.proc, kern.procargs2) are left out: the latter has their environment.",
        source=f"{_CODEX}; XNU, bsd/kern/kern_sysctl.c (sysctl_procargsx)",
    ),
    "semaphores": Reason(
        why="Python's multiprocessing needs named semaphores; their names start with /mp-. Other names could "
        "belong to other programs.",
        source=f"{_CODEX}; CPython, Lib/multiprocessing/synchronize.py",
    ),
    "terminals": Reason(
        why="Programs make terminals of their own. The extension keeps them from those of others.",
        source=_CODEX,
    ),
    "accounts": Reason(
        why="Names of users and groups come from opendirectoryd.", source=f"{_CHROMIUM}; {_RUNTIME}"
    ),
    "local sockets": Reason(
        why="Creates local sockets. What they connect to is judged by path.",
        source=f"{_MXC}; OpenAI Codex, codex-rs/sandboxing (system-socket)",
    ),
    "network": Reason(
        why="With --network commands: connections by IP, in both directions.", source=f"{_NIX}; {_RUNTIME}"
    ),
    "web": Reason(
        why="The server's web tools and the client of the model connect by IP; which address is for the "
        "address guard to decide.",
        source=_RUNTIME,
    ),
    "model": Reason(
        why="With --network none a model on loopback is reached at its port and nowhere else.",
        source=f"{_RUNTIME} (remote ip with localhost)",
    ),
    "clients": Reason(
        why="A server for HTTP accepts connections on the socket that it opened before.",
        source=f"{_GUIDE} (network-inbound)",
    ),
    "name lookup": Reason(
        why="Where the network is granted, names are looked up by mDNSResponder and the settings of the "
        "network; trustd checks certificates for programs that use the system's.",
        source=f"{_NIX}; OpenAI Codex, codex-rs/sandboxing (network policy)",
    ),
    "reading": Reason(
        why="A command reads the machine as on Linux; the rules below take away secrets.",
        source="OpenAI Codex and sandbox-runtime allow the same",
    ),
    "paths": Reason(
        why="Resolving a path needs the metadata of folders and links on the way.",
        source=f"{_CHROMIUM} (realpath); {_RUNTIME}",
    ),
    "start": Reason(
        why="What a program needs to start: the loader, the system's libraries, and those of package "
        "managers.",
        source=f"{_CHROMIUM} (dyld, Cryptexes); jdx/mise, pull request 12263; docs.brew.sh, Installation",
    ),
    "searched folder": Reason(
        why="A search reads the folder that it was started in.", source="docs/security.md"
    ),
    "own places": Reason(
        why="A program of the server reads its own files wherever they lie.", source="docs/security.md"
    ),
    "server files": Reason(
        why="The server reads the roots, its state folder, Python and the files that its settings name.",
        source="docs/security.md",
    ),
    "server writes": Reason(
        why="The server writes its state folder, and in workspace-write the roots; a hard link keeps the old "
        "content of a file until the new one is in its place.",
        source="docs/security.md",
    ),
    "devices": Reason(
        why="No device but those that follow: disks hold everything that is hidden, and a terminal can be "
        "typed into.",
        source=f"{_CODEX}; {_NIX}",
    ),
    "plain devices": Reason(
        why="Programs expect null, zero, random and the descriptors that they have open.",
        source=f"{_NIX}; {_CHROMIUM}",
    ),
    "second names": Reason(
        why="/System/Volumes/Data holds user files under second names. The kernel names a file by the first, "
        "so this rule matches nothing on a healthy system.",
        source=f"Apple, firmlinks (WWDC 2019, session 710); {_CHROMIUM} (FB9738355)",
    ),
    "temporary files of others": Reason(
        why="Temporary folders of the machine hold files and sockets of other programs; on Linux a command "
        "has its own /tmp.",
        source="confstr(3), _CS_DARWIN_USER_TEMP_DIR",
    ),
    "hidden": Reason(
        why="Neither content nor metadata of the state folder, of secrets, of what rules hide, of roots that "
        "the client does not work in; no socket in them. A file may carry the name of a subpath.",
        source=f"{_RUNTIME}; sandbox-runtime, issue 8",
    ),
    "shown": Reason(
        why="A root is read, even in a folder that is hidden otherwise.", source="docs/security.md"
    ),
    "written": Reason(
        why="The temporary folder in every mode, the roots in workspace-write, a `.git` folder for "
        "git_commit: files and sockets.",
        source=f"{_CODEX}; {_MXC}",
    ),
    "protected names": Reason(
        why="Nobody but the user changes what git, editors, agents and shells act on: not in a root, and not "
        "in the temporary folder, from where a folder could be moved into a root. Any case, and what HFS+"
        " ignores or folds, as in a name with an invisible character.",
        source="CVE-2014-9390; Apple, TN1150 (HFS+ case folding); denoland/deno, pull request 33451",
    ),
    "folders of protected names": Reason(
        why="With --git writable `.git` may not be created, replaced or moved: a prepared one could take its "
        "place.",
        source=f"{_RUNTIME} (file-write-unlink stops moves); sandbox-runtime, issue 8",
    ),
    "pins": Reason(
        why="Rules follow paths. A root, and each folder between it and something hidden, is not moved or "
        "removed: elsewhere no rule would match.",
        source="sandbox-runtime, issue 8",
    ),
    "setuid": Reason(why="No file becomes a program that runs as this user for others.", source=_NIX),
}
"""By the name that a rule carries."""
