"""The capabilities: what a tool may ask of the host, the permission that each requires, and their values.

A tool declares its `needs`; it gets a runtime with those and nothing else. The implementations live in
`runtime/` and `stores/`; this package knows no operating system.
"""
