"""The process broker for POSIX systems other than Linux, above all macOS.

Never executed on macOS: it is tested on Linux, with the same tests as the broker of Linux where both promise
the same. It starts, limits and ends programs with what POSIX has: forks, sessions, signals, sockets that pass
descriptors, and `ps`.

A process belongs to a command if its parent does; if it is in the session of the supervisor or in one that a
process of the command made; if its environment carries the marker of the command; or if an earlier look at
the list of processes found it. Looks are taken while the command runs and when it has ended.

docs/internals/seatbelt.md says what only the broker of Linux guarantees, and why.
"""
