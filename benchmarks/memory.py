"""How much memory a server holds, and by how much a call makes it grow."""

from dataclasses import dataclass
from pathlib import Path

PEAK_RESET = "5"


@dataclass(frozen=True)
class Peak:
    """The memory of one process from now on; kernel figures, in bytes."""

    pid: int
    before: int

    @classmethod
    def of(cls, pid: int) -> "Peak":
        """Start: forget the highest mark so far."""
        Path(f"/proc/{pid}/clear_refs").write_text(PEAK_RESET, encoding="ascii")
        return cls(pid, _status(pid, "VmRSS"))

    def growth(self) -> int:
        """From the start to the highest mark since."""
        return max(0, _status(self.pid, "VmHWM") - self.before)


def resident(pid: int) -> int:
    """What a process holds now, in bytes."""
    return _status(pid, "VmRSS")


def proportional(pid: int) -> int:
    """What a process and all that it started hold now, with the share of each in what they share (PSS)."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8").splitlines()
    own = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8").split()
    return own + sum(proportional(int(child)) for child in children)


def megabytes(value: float) -> str:
    """A size for the table."""
    return f"{value / 1e6:.1f} MB"


def _status(pid: int, field: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))
