"""click 8.1.7, the project of the four tasks that were measured before this server had its present shell."""

from benchmarks.agent.projects import SourceDistribution

CLICK = SourceDistribution(
    "click", "8.1.7", "ca9853ad459e787e2192211578cc907e7594e294c7ccc834310722b41b9ca6de"
)
