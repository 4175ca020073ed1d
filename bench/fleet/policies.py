"""The policies that are compared."""

from __future__ import annotations

from dataclasses import dataclass, field

from bench.fleet import hardware
from bench.fleet.hpa import Hpa, Metric, Pair
from bench.fleet.simulation import TPOT_SECONDS, TTFT_SECONDS
from bench.fleet.view import FleetView, PodView, Replicas, RoleView
from oasis_operator.autoscaling.decide import decide
from oasis_operator.autoscaling.history import History
from oasis_operator.autoscaling.measured import Fleet, Latency, Link, Pod, Ratio, RoleSignals
from oasis_operator.autoscaling.policy import Bounds, ScalingSpec, Slo

IDLE_CORES = 0.017
"""CPU of an idle engine, measured: bench/results/pd.json."""
CORES_A_TOKEN = 1e-4
"""CPU seconds of the API server for each token that it sends: assumed. Without it the CPU of a
decode pod would be one core whenever it has a request, and say nothing at all."""


def cores(pod: PodView) -> float:
    """CPU of an engine on a GPU: its core process polls the device while a request runs."""
    return IDLE_CORES + pod.busy + CORES_A_TOKEN * pod.answer_tokens


def waiting(pod: PodView) -> float:
    """``vllm:num_requests_waiting``."""
    return pod.waiting


def in_flight(pod: PodView) -> float:
    """The same and those in the batch."""
    return pod.running + pod.waiting


def hpas(metric: Metric, prefill: float, decode: float, most: Replicas) -> Pair:
    """Targets are means over the pods of a role; ``most`` is ``maxReplicas`` of both."""
    return Pair(Hpa(metric, prefill, most.prefill), Hpa(metric, decode, most.decode))


@dataclass(frozen=True)
class Static:
    """As many pods as somebody once decided."""

    count: Replicas

    def replicas(self, view: FleetView, now: float) -> Replicas:  # noqa: ARG002
        return self.count


@dataclass
class Oasis:
    """The operator's own decision, with the same spec in every run."""

    gpus: int
    history: History = field(default_factory=History)

    def replicas(self, view: FleetView, now: float) -> Replicas:
        spec = ScalingSpec(
            decode=Bounds(1, self.gpus),
            prefill=Bounds(1, self.gpus),
            slo=Slo(TTFT_SECONDS, TPOT_SECONDS),
            requests_per_decode_pod=hardware.MAX_REQUESTS,
            gpu_budget=self.gpus,
        )
        decision = decide(_fleet(view), spec, self.history, now)
        self.history = decision.history
        assert decision.prefill is not None
        return Replicas(decision.prefill.replicas, decision.decode.replicas)


def _fleet(view: FleetView) -> Fleet:
    return Fleet(
        decode=_role(view.decode, {"host_fast": hardware.HOST_LINK}),
        prefill=_role(view.prefill, {}),
        hit=Ratio(view.resident, view.selected),
        dense=Ratio(0.0, view.decode.started),
        recall=Ratio(0.0, 0.0),
        slots=Ratio(0.0, 1.0),
        exports=view.exports,
        export_seconds=view.export_seconds,
    )


def _role(view: RoleView, others: dict[str, float]) -> RoleSignals:
    return RoleSignals(
        replicas=view.replicas,
        pods=tuple(
            Pod(
                ready_seconds=pod.ready_seconds,
                running=pod.running,
                waiting=pod.waiting,
                busy=pod.busy,
                tokens=pod.prompt_tokens,
                links={
                    "network": Link(pod.network, hardware.NETWORK),
                    **{name: Link(pod.fetched, capacity) for name, capacity in others.items()},
                },
            )
            for pod in view.pods
        ),
        placed=view.placed,
        pending_seconds=view.pending_seconds,
        queue=Latency(view.wait, view.started),
        latency=Latency(view.latency, view.observed),
    )
