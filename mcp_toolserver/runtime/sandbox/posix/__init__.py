"""The process broker for POSIX systems other than Linux, above all macOS.

Never executed on macOS: it is tested on Linux, with the same tests as the broker of Linux where both promise
the same. It starts, limits and ends programs with what POSIX has: forks, sessions, signals, sockets that pass
descriptors, and `ps`.

A process belongs to a command if its parent does; if it is in the session of the supervisor or in one that a
process of the command made; if its environment carries the marker of the command; or if an earlier look at
the list of processes found it. Looks are taken while the command runs and when it has ended.

What only the broker of Linux guarantees, and why:

* Every process that a command started is killed. On Linux orphans become children of the supervisor
  (PR_SET_CHILD_SUBREAPER). Here a process survives that between two looks leaves its parent and its session
  and has cleared its environment, or whose environment `ps` does not show: macOS hides that of programs that
  System Integrity Protection restricts. So does a process of another user, such as one that sudo started.
* A fork storm cannot outrun the kill: on Linux `kill(-1)` in a signal scope (Landlock) reaches all at once.
  Here processes are stopped as they are seen, until a look finds no new one.
* No signal ever reaches another process. Here a process that ends between a look and the signal, and whose
  number is given away at once, would be hit by mistake; numbers are given in turn, so all would have to be
  used up within milliseconds.
* A command cannot signal its supervisor or the broker (signal scopes). Here Seatbelt forbids that to confined
  commands; in danger-full-access a command can kill both. The broker then ends what a look finds of it.
* A broker or supervisor that is killed takes its program along at once (PR_SET_PDEATHSIG). Here each of the
  two notices the death of the other, and ends what is left.
* Threads are limited (POSIX has no keyword of `ps` for them), and memory counts shared pages once. Here they
  count for each process that has them (`rss`).
* All processor time is counted. Here that of processes that ended is counted only if their parent waited for
  them, and on Linux only in whole seconds.
* The temporary folder of a session has a size limit, as a file system of its own. Here it is a folder.
* Commands of a session share a loopback interface of their own (network namespaces).
* Privileges cannot be gained through set-user-ID programs (PR_SET_NO_NEW_PRIVS). Here that holds for confined
  commands only, because Seatbelt refuses to start such programs.
* When memory runs short, the kernel ends commands first (oom_score_adj).

Sources: ps(1), setsid(2) and getsid(2) of macOS; unp_externalize in uipc_usrreq.c and sysctl_procargsx in
kern_sysctl.c of XNU. The keywords of macOS `ps` are in keyword.c of Apple's adv_cmds, where `sess` prints an
address in the kernel, so sessions are asked for with getsid.
"""
