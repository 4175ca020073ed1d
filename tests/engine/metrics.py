"""Reading an engine's /metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

Series = tuple[str, frozenset[tuple[str, str]]]


@dataclass(frozen=True)
class Metrics:
    """Values by sample name and labels."""

    samples: Mapping[Series, float]

    @staticmethod
    def parse(text: str) -> Metrics:
        return Metrics(
            {
                (sample.name, frozenset(sample.labels.items())): sample.value
                for family in text_string_to_metric_families(text)
                for sample in family.samples
            }
        )

    def since(self, before: Metrics) -> Metrics:
        """What was added to each series; gauges too."""
        old = before.samples
        return Metrics({key: value - old.get(key, 0.0) for key, value in self.samples.items()})

    def value(self, name: str, **labels: str) -> float:
        """Sum of the samples with this name and at least these labels; 0 without any."""
        wanted = labels.items()
        return sum(v for (n, found), v in self.samples.items() if n == name and wanted <= found)

    def has(self, name: str) -> bool:
        return any(n == name for n, _ in self.samples)

    def mean(self, histogram: str) -> float:
        """Of the observations; raises ZeroDivisionError without any."""
        return self.value(f"{histogram}_sum") / self.value(f"{histogram}_count")
