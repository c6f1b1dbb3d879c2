"""The forked side: the broker, its nannies and what the kernel does for them. Standard library only.

`charter` says what may be asked, `wire` how it is asked, `serve` is the broker's loop, `nanny` watches one
command, `environment` what it inherits. The server's process needs none of it but `charter`, `wire` and
`environment`; the rest is imported after the fork.
"""
