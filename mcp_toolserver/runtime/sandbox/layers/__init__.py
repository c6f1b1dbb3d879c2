"""The layers of the sandbox: bubblewrap, Landlock, seccomp, resource locks."""
