"""What Seatbelt profiles can name: operations and, for each group of them, filters and modifiers.

Sources: the names in libsandbox as SandBlaster (github.com/malus-security/sandblaster) and SandboxMirror
(github.com/steven-michaud/SandboxMirror) list them; Apple Sandbox Guide 1.0 by fG!; the profiles in
/System/Library/Sandbox/Profiles. A name that is missing here is an error, even if some macOS knows it.
"""

from collections.abc import Iterator

DEFAULT = "default"

_NAMES = """
appleevent-send authorization-right-obtain boot-arg-set darwin-notification-post device* device-camera
device-microphone distributed-notification-post dynamic-code-generation file* file-chroot file-clone
file-ioctl file-issue-extension file-link file-map-executable file-mknod file-mount file-mount-update
file-read* file-read-data file-read-metadata file-read-xattr file-revoke file-search file-test-existence
file-unmount file-write* file-write-acl file-write-create file-write-data file-write-finderinfo
file-write-flags file-write-mode file-write-mount file-write-owner file-write-setugid file-write-times
file-write-unlink file-write-unmount file-write-xattr fs-rename fs-snapshot* fs-snapshot-create
fs-snapshot-delete fs-snapshot-revert generic-issue-extension hid-control iokit* iokit-get-properties
iokit-issue-extension iokit-open iokit-set-properties ipc* ipc-posix* ipc-posix-issue-extension
ipc-posix-sem* ipc-posix-sem-create ipc-posix-sem-open ipc-posix-sem-post ipc-posix-sem-unlink
ipc-posix-sem-wait ipc-posix-shm* ipc-posix-shm-read* ipc-posix-shm-read-data ipc-posix-shm-read-metadata
ipc-posix-shm-write* ipc-posix-shm-write-create ipc-posix-shm-write-data ipc-posix-shm-write-unlink
ipc-sysv* ipc-sysv-msg ipc-sysv-sem ipc-sysv-shm job-creation load-unsigned-code lsopen mach*
mach-bootstrap mach-cross-domain-lookup mach-host* mach-host-exception-port-set mach-host-special-port-set
mach-issue-extension mach-lookup mach-per-user-lookup mach-priv* mach-priv-host-port mach-priv-task-port
mach-register mach-task-name managed-preference-read network* network-bind network-inbound
network-outbound nvram* nvram-delete nvram-get nvram-set opendirectory-user-modify process*
process-codesigning-status* process-codesigning-status-get process-codesigning-status-set process-exec*
process-exec-interpreter process-fork process-info* process-info-codesignature process-info-dirtycontrol
process-info-listpids process-info-pidfdinfo process-info-pidfileportinfo process-info-pidinfo
process-info-rusage process-info-setcontrol pseudo-tty qtn-user signal socket-ioctl sysctl* sysctl-read
sysctl-write system* system-acct system-audit system-automount system-chud system-debug system-fcntl
system-fsctl system-info system-kext* system-kext-load system-kext-query system-kext-unload
system-mac-label system-nfssvc system-package-check system-privilege system-reboot system-sched
system-set-time system-socket system-suspend-resume system-swap user-preference* user-preference-read
user-preference-write
"""

OPERATIONS = frozenset(_NAMES.split())

ALIASES = {
    "process-exec": "process-exec*",
    "ipc-posix-sem": "ipc-posix-sem*",
    "ipc-posix-shm": "ipc-posix-shm*",
    "mach-host": "mach-host*",
}
"""Names without a star that stand for a group: Apple's own profiles spell them so."""

NOT_DENIED_BY_DEFAULT = "process-info*"
"""`(deny default)` leaves these allowed; only a rule that names them denies them.

Measured on macOS 15.7.9 by the native tests of a launcher, whose documentation on platform differences says
that another process's arguments and environment could be read until the profile had `(deny process-info*)`.
"""

_PATHS = frozenset({"literal", "subpath", "prefix", "regex", "path-literal", "path-regex", "path-prefix"})
_FILES = _PATHS | {"vnode-type", "file-mode", "file-attribute"}
_SOCKETS = frozenset({"socket-domain", "socket-type", "socket-protocol"})
_EVERYWHERE = frozenset({"extension", "process-attribute", "system-attribute"})
_MACH_NAMES = frozenset(
    f"{kind}{how}"
    for kind in ("global-name", "local-name", "xpc-service-name")
    for how in ("", "-regex", "-prefix")
)

_FILTERS = {
    "file": _FILES,
    "process-exec": _FILES,
    "network": _PATHS | {"remote", "local", "control-name", *_SOCKETS},
    "mach-lookup": _MACH_NAMES,
    "mach-register": _MACH_NAMES,
    "mach-priv-task-port": frozenset({"target"}),
    "mach-task-name": frozenset({"target"}),
    "signal": frozenset({"target"}),
    "process-info": frozenset({"target"}),
    "process-codesigning-status": frozenset({"target"}),
    "appleevent-send": frozenset({"appleevent-destination"}),
    "sysctl": frozenset({"sysctl-name", "sysctl-name-regex", "sysctl-name-prefix"}),
    "ipc-posix": frozenset({"ipc-posix-name", "ipc-posix-name-regex", "ipc-posix-name-prefix"}),
    "iokit": frozenset({"iokit-user-client-class", "iokit-registry-entry-class", "iokit-connection",
                        "iokit-property"}),
    "system-socket": _SOCKETS,
    "system-fcntl": frozenset({"fcntl-command"}),
    "user-preference": frozenset({"preference-domain"}),
    "managed-preference": frozenset({"preference-domain"}),
    "authorization-right-obtain": frozenset({"right-name"}),
    "distributed-notification-post": frozenset({"notification-name"}),
    "darwin-notification-post": frozenset({"notification-name"}),
}  # fmt: skip
"""By how an operation's name begins; the longest that fits counts."""

MODIFIERS = frozenset(
    {"send-signal", "report", "no-report", "no-log", "message", "telemetry", "deprecated", "no-times"}
)


def canonical(name: str) -> str | None:
    """The operation that `name` stands for, or None for a name that no profile can use."""
    name = ALIASES.get(name, name)
    return name if name in OPERATIONS or name == DEFAULT else None


def filters_of(operation: str) -> frozenset[str]:
    """The filters that apply to an operation."""
    fitting = [start for start in _FILTERS if operation.startswith(start)]
    return _EVERYWHERE | (_FILTERS[max(fitting, key=len)] if fitting else frozenset())


def groups(operation: str) -> Iterator[str]:
    """The operation and each group that it belongs to, but not `default`; the narrowest first."""
    yield operation
    parts = operation.removesuffix("*").split("-")
    for count in range(len(parts), 0, -1):
        group = f"{'-'.join(parts[:count])}*"
        if group in OPERATIONS and group != operation:
            yield group


def covers(group: str, operation: str) -> bool:
    """Whether a rule for `group` is one for `operation` too."""
    return group in groups(operation)
