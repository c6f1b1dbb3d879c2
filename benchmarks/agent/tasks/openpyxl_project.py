"""openpyxl 3.1.5, which the development environment has: the project of the tasks that need no network."""

from benchmarks.agent.projects import InstalledPackage

OPENPYXL = InstalledPackage(
    "openpyxl", "3.1.5", "310d2cf1578a6ae8b6ce06fefd6005c8d65396bf3f7277ac66cfe8355f94990b"
)
