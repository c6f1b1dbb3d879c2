"""What a tool may ask of the host, what each costs, and the shapes that cross that line.

A tool declares its `needs`; it gets a runtime with those and nothing else. The implementations live in
`runtime/` and `stores/`; this package knows no operating system.
"""
