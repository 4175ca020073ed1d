"""``spec.autoscaling`` of an OasisDeployment."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from oasis_operator.api.base import ApiModel, rule, rules

MOST_REPLICAS = 512
"""Of one role, as ``replicas``."""

Share = Annotated[str, Field(max_length=7, pattern=r"^[1-9][0-9]{0,2}:[1-9][0-9]{0,2}$")]
"""Prefill pods to decode pods, such as ``1:4``."""


class RoleScaling(ApiModel):
    """Between how many pods a role is scaled."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "self.minReplicas <= self.maxReplicas",
                "minReplicas must not exceed maxReplicas: lower it or raise maxReplicas",
                ".minReplicas",
            )
        )
    )

    min_replicas: Annotated[int, Field(ge=1, le=MOST_REPLICAS)] = 1
    """Pods that stay without any load."""
    max_replicas: Annotated[int, Field(ge=1, le=MOST_REPLICAS)]
    """Pods that are never exceeded."""


def _of(field: str, part: int) -> str:
    return f"int(self.{field}.split(':')[{part}])"


class RoleRatio(ApiModel):
    """Bounds of the number of prefill pods to the number of decode pods."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "!has(self.min) || !has(self.max) || "
                f"{_of('min', 0)} * {_of('max', 1)} <= {_of('max', 0)} * {_of('min', 1)}",
                "ratio.min must not exceed ratio.max: lower it, 1:4 is less than 2:1",
            )
        )
    )

    min: Share | None = None
    """Absent: no bound."""
    max: Share | None = None
    """Absent: no bound."""


class Slo(ApiModel):
    """Latencies that nine of ten requests are to keep."""

    ttft_milliseconds: Annotated[int, Field(ge=1, le=3600000)] = 2000
    """Time to first token. What a prompt takes by itself no number of pods makes shorter."""
    tpot_milliseconds: Annotated[int, Field(ge=1, le=60000)] = 50
    """Time per output token after the first."""


_BOTH_BOUNDED = "!has(self.ratio) || !has(self.prefill) || !has(self.decode)"
"""CEL: begins a rule about the ratio that needs the bounds of both roles."""


class Autoscaling(ApiModel):
    """Who decides how many pods the roles have, and by what."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "self.owner == 'external' || has(self.decode)",
                "write autoscaling.decode.maxReplicas",
            ),
            rule(
                "self.owner == 'oasis' || "
                "!(has(self.prefill) || has(self.decode) || has(self.gpuBudget) || "
                "has(self.ratio))",
                "an external owner has bounds of its own: use autoscaling without prefill, decode, "
                "gpuBudget and ratio",
            ),
            rule(
                f"{_BOTH_BOUNDED} || !has(self.ratio.min) || {_of('ratio.min', 0)} * "
                f"self.decode.minReplicas <= {_of('ratio.min', 1)} * self.prefill.maxReplicas",
                "so few prefill pods beside so many decode pods never have ratio.min: lower it, "
                "raise prefill.maxReplicas or lower decode.minReplicas",
                ".ratio",
            ),
            rule(
                f"{_BOTH_BOUNDED} || !has(self.ratio.max) || {_of('ratio.max', 1)} * "
                f"self.prefill.minReplicas <= {_of('ratio.max', 0)} * self.decode.maxReplicas",
                "so many prefill pods beside so few decode pods never have ratio.max: raise it, "
                "lower prefill.minReplicas or raise decode.maxReplicas",
                ".ratio",
            ),
        )
    )

    owner: Literal["oasis", "external"] = "oasis"
    """``oasis``: the operator decides, by what Prometheus says of the engines. ``external``: a
    HorizontalPodAutoscaler or KEDA does, through the OasisRole of each role."""
    prefill: RoleScaling | None = None
    """Bounds of prefill, exactly if there are prefill pods."""
    decode: RoleScaling | None = None
    """Bounds of decode."""
    gpu_budget: Annotated[int | None, Field(ge=1, le=65536)] = None
    """Most GPUs of all engines together; a pod without any counts as one. Absent: no bound."""
    ratio: RoleRatio | None = None
    """Bounds of prefill pods to decode pods."""
    slo: Slo = Slo()
    """Latencies to keep."""
    scale_down_seconds: Annotated[int, Field(ge=0, le=3600)] = 300
    """Pods are taken away only if they were not needed in all this time."""
    warm_up_seconds: Annotated[int, Field(ge=0, le=3600)] = 30
    """What pods report in this time after they became ready does not count."""
    pending_seconds: Annotated[int, Field(ge=30, le=86400)] = 600
    """Pods that do not run on a node after this long are given up for a while. How long they load
    then is a matter of updates.progressDeadlineSeconds."""
