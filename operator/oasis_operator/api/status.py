"""``status`` of an OasisDeployment."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from oasis_operator.api.base import ApiModel

ConditionStatus = Literal["True", "False", "Unknown"]


class Condition(ApiModel):
    """One observation; the message says what to do about it when it is not as it should be."""

    type: Annotated[str, Field(min_length=1, max_length=316)]
    """What it is about."""
    status: ConditionStatus
    """Unknown: nothing is known that it could be judged by."""
    reason: Annotated[str, Field(min_length=1, max_length=1024)]
    """One word for machines."""
    message: Annotated[str, Field(max_length=32768)]
    """Sentences for people."""
    last_transition_time: Annotated[str, Field(json_schema_extra={"format": "date-time"})]
    """When the status became what it is."""
    observed_generation: Annotated[int, Field(ge=0)]
    """Generation of the spec that was looked at."""


class RoleStatus(ApiModel):
    """Pods of one role in the current revision."""

    replicas: int
    """Pods that there are."""
    ready_replicas: int
    """Pods that answer."""
    desired_replicas: int | None = None
    """Pods that the spec or the autoscaler asks for; absent in what older operators wrote."""
    ready: Annotated[str | None, Field(max_length=32)] = None
    """Ready of desired pods, such as `1/2`: a column of a table can show one field only."""


class RolePlacement(ApiModel):
    """Who allocates the devices of one role's pods."""

    mode: Literal["dra", "kubelet"]
    """``dra``: the scheduler, by claims; ``kubelet``: the node, by counted resources."""
    why: Annotated[str, Field(max_length=1024)]
    """What this follows from."""


class PlacementStatus(ApiModel):
    """By role."""

    prefill: RolePlacement | None = None
    decode: RolePlacement | None = None


class Status(ApiModel):
    """What the operator observed last."""

    observed_generation: int | None = None
    """Generation of the spec that was carried out last."""
    revision: str | None = None
    """Revision that the spec asks for."""
    serving_revision: str | None = None
    """Revision that the router sends requests to; absent while an update leaves it no pods."""
    model: Annotated[str | None, Field(max_length=1024)] = None
    """Short name of the model's source."""
    prefill: RoleStatus | None = None
    decode: RoleStatus | None = None
    router: RoleStatus | None = None
    mode: Literal["sparse", "dense"] | None = None
    """How most decode steps of the last minutes ran; absent until the serving revision has any."""
    hit_rate: Annotated[str | None, Field(max_length=8)] = None
    """Share of selected pages that were resident, as last measured of the serving revision."""
    endpoint: str | None = None
    """Base URL of the OpenAI API inside the cluster."""
    placement: PlacementStatus | None = None
    """What ``topology.numa.mode`` came to."""
    conditions: Annotated[
        list[Condition] | None,
        Field(
            max_length=32,
            json_schema_extra={
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["type"],
            },
        ),
    ] = None
    """Observations, by type."""
