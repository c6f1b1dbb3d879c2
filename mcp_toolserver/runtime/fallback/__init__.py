"""A stand-in for ripgrep, for hosts without it: a program of its own, so that a slow pattern can be killed.

It understands the options that `runtime.ripgrep` gives and prints what ripgrep would. It is slower, and its
patterns are Python's: what Rust's would refuse (look-around, back-references) is refused, but some that Rust
takes, such as `\\p{Greek}`, are refused too. Standard library and `pathspec` only.
"""
