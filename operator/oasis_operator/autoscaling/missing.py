"""Which measurements should be there and are not. A missing number is never zero."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from oasis_operator.autoscaling.capacity import warm
from oasis_operator.autoscaling.measured import Fleet, Latency, Pod, Ratio, RoleSignals, known
from oasis_operator.autoscaling.policy import Behaviour

FIRST_RATES_SECONDS = 90.0
"""After its warm-up a pod has its first rates within this time: Prometheus finds it within half a
minute, and a rate over a minute takes two scrapes."""


@dataclass(frozen=True)
class Gap:
    """One measurement that is not there, in words."""

    what: str
    passing: bool
    """It is of pods that became ready just now, and comes by itself."""


def missing(fleet: Fleet, behaviour: Behaviour) -> tuple[Gap, ...]:
    """What is missing, each once: passing if it is so for every pod that misses it."""
    found: dict[str, bool] = {}
    for gap in _missing(fleet, behaviour):
        found[gap.what] = gap.passing and found.get(gap.what, True)
    return tuple(Gap(what, passing) for what, passing in found.items())


def _missing(fleet: Fleet, behaviour: Behaviour) -> Iterator[Gap]:
    for name, role in (("prefill", fleet.prefill), ("decode", fleet.decode)):
        if role is not None:
            yield from _of_role(role, behaviour, name)
    ratios = {
        "hit rate": fleet.hit,
        "share of dense requests": fleet.dense,
        "recall": fleet.recall,
        "slots of the fast tier": fleet.slots,
    }
    fresh = _fresh(fleet.decode.pods, behaviour)
    yield from (Gap(what, fresh) for what, ratio in ratios.items() if not _there(ratio))
    if fleet.prefill is not None and not (known(fleet.exports) and known(fleet.export_seconds)):
        yield Gap("exports", _fresh(fleet.prefill.pods, behaviour))


def _of_role(role: RoleSignals, behaviour: Behaviour, name: str) -> Iterator[Gap]:
    pods, fresh = warm(role.pods, behaviour), _fresh(role.pods, behaviour)
    if not pods:
        yield Gap(f"a pod that is ready and warm of {name}", fresh)
    for pod in pods:
        for what in _of_pod(pod, name == "prefill"):
            yield Gap(f"{what} of {name}", _fresh((pod,), behaviour))
    for what, latency in (("queue time", role.queue), ("latency", role.latency)):
        if not _observed(latency):
            yield Gap(f"{what} of {name}", fresh)


def _fresh(pods: Sequence[Pod], behaviour: Behaviour) -> bool:
    """Whether all of some pods, of which there are any, may be without rates yet."""
    settled = behaviour.warm_up_seconds + FIRST_RATES_SECONDS
    return bool(pods) and all(pod.ready_seconds < settled for pod in pods)


def _of_pod(pod: Pod, is_prefill: bool) -> Iterator[str]:
    if not (known(pod.running) and known(pod.waiting)):
        yield "requests"
    if is_prefill and not (known(pod.busy) and known(pod.tokens)):
        yield "work"
    if not all(known(link.used) and known(link.capacity) for link in pod.links.values()):
        yield "links"


def _observed(latency: Latency) -> bool:
    """Without a request there is no quantile, and that is no gap."""
    return known(latency.rate) and (latency.rate == 0 or known(latency.seconds))


def _there(ratio: Ratio) -> bool:
    return known(ratio.whole) and (ratio.whole == 0 or known(ratio.part))
