"""Which measurements should be there and are not. A missing number is never zero."""

from __future__ import annotations

from collections.abc import Iterator

from oasis_operator.autoscaling.capacity import warm
from oasis_operator.autoscaling.measured import Fleet, Latency, Pod, Ratio, RoleSignals, known
from oasis_operator.autoscaling.policy import Behaviour


def missing(fleet: Fleet, behaviour: Behaviour) -> tuple[str, ...]:
    """What is missing, in words, without repetition."""
    return tuple(dict.fromkeys(_missing(fleet, behaviour)))


def _missing(fleet: Fleet, behaviour: Behaviour) -> Iterator[str]:
    for name, role in (("prefill", fleet.prefill), ("decode", fleet.decode)):
        if role is not None:
            for what in _of_role(role, behaviour, name == "prefill"):
                yield f"{what} of {name}"
    ratios = {
        "hit rate": fleet.hit,
        "share of dense requests": fleet.dense,
        "recall": fleet.recall,
        "slots of the fast tier": fleet.slots,
    }
    yield from (what for what, ratio in ratios.items() if not _there(ratio))
    if fleet.prefill is not None and not (known(fleet.exports) and known(fleet.export_seconds)):
        yield "exports"


def _of_role(role: RoleSignals, behaviour: Behaviour, is_prefill: bool) -> Iterator[str]:
    pods = warm(role.pods, behaviour)
    if not pods:
        yield "a pod that is ready and warm"
    for pod in pods:
        yield from _of_pod(pod, is_prefill)
    for what, latency in (("queue time", role.queue), ("latency", role.latency)):
        if not _observed(latency):
            yield what


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
