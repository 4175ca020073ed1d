"""What a decision remembers of earlier ones. It starts empty after a restart, and may."""

from __future__ import annotations

from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class Sample:
    """One earlier decision about one role."""

    at: float
    replicas: int
    """Pods there were."""
    needed: int
    """Pods that were needed, before windows and limits."""
    load: float = 0.0
    """Pods that the load of that moment asked for, not rounded."""
    requests: float = 0.0
    """Requests that the role had, in work or waiting."""


@dataclass(frozen=True)
class RoleHistory:
    """Of one role."""

    samples: tuple[Sample, ...] = ()
    capacity: float | None = None
    """What one pod was seen to carry: prompt tokens a second of a prefill pod that is always busy;
    a decode pod's requests within the SLO, as a share of what it is counted to carry."""
    given_up_at: float | None = None
    """When pods were last given up for having been pending too long."""
    given_up_above: int = 0
    """More pods than these found no place then."""

    def since(self, time: float) -> tuple[Sample, ...]:
        return tuple(sample for sample in self.samples if sample.at > time)

    def with_sample(self, sample: Sample, keep_seconds: float) -> RoleHistory:
        """With one more; of those older than ``keep_seconds`` the newest stays, to tell how far
        back the others reach."""
        oldest = sample.at - keep_seconds
        older = tuple(item for item in self.samples if item.at <= oldest)
        return replace(self, samples=(*older[-1:], *self.since(oldest), sample))


@dataclass(frozen=True)
class History:
    """Of one OasisDeployment's serving revision. Times are seconds on any one clock."""

    prefill: RoleHistory = field(default_factory=RoleHistory)
    decode: RoleHistory = field(default_factory=RoleHistory)
    low_quality_since: float | None = None
    low_seen: float = 0.0
    """When recall was last measured to be low."""
    at: float = 0.0
    """When the last decision was made."""
