"""The forked side: the broker, its supervisors and what the kernel does for them. Standard library only.

`broker` starts programs and supervises them, `layers` confines them, `mounts` says what they see, `protected`
watches the names they must not create or change, `selftest` proves all of it at start-up. The server's
process needs only `broker.policy`, `broker.messages` and `layers.environment`; the rest is imported after the
fork.
"""
