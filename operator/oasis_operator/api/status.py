"""``status`` of an OasisDeployment."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from oasis_operator.api.base import ApiModel

ConditionStatus = Literal["True", "False", "Unknown"]


class Condition(ApiModel):
    """One observation; the message says what to do about it when it is not as it should be."""

    type: Annotated[str, Field(min_length=1, max_length=316)]
    status: ConditionStatus
    reason: Annotated[str, Field(min_length=1, max_length=1024)]
    message: Annotated[str, Field(max_length=32768)]
    last_transition_time: Annotated[str, Field(json_schema_extra={"format": "date-time"})]
    observed_generation: Annotated[int, Field(ge=0)]


class RoleStatus(ApiModel):
    """Pods of one role in the current revision."""

    replicas: int
    ready_replicas: int
    desired_replicas: int | None = None
    """Pods that the spec or the autoscaler asks for; absent in what older operators wrote."""
    ready: Annotated[str | None, Field(max_length=32)] = None
    """Ready of desired pods, such as `1/2`: a column of a table can show one field only."""


class RolePlacement(ApiModel):
    """Who allocates the devices of one role's pods."""

    mode: Literal["dra", "kubelet"]
    why: Annotated[str, Field(max_length=1024)]
    """What this follows from."""


class PlacementStatus(ApiModel):
    """By role."""

    prefill: RolePlacement | None = None
    decode: RolePlacement | None = None


class Status(ApiModel):
    """What the operator observed last."""

    observed_generation: int | None = None
    revision: str | None = None
    """Revision that the spec asks for."""
    serving_revision: str | None = None
    """Revision that the router sends requests to."""
    model: Annotated[str | None, Field(max_length=512)] = None
    """Short name of the model's source."""
    prefill: RoleStatus | None = None
    decode: RoleStatus | None = None
    router: RoleStatus | None = None
    mode: Literal["sparse", "dense"] | None = None
    """How most decode steps of the last minutes ran."""
    hit_rate: Annotated[str | None, Field(max_length=8)] = None
    """Share of selected pages that were resident, as last measured."""
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
