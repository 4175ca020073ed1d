"""Where a pod may run."""

from __future__ import annotations

from oasis_operator.api.spec import Toleration
from oasis_operator.desired.metadata import Manifest


def scheduling(
    node_selector: dict[str, str] | None, tolerations: list[Toleration] | None
) -> Manifest:
    """The part of a pod's spec that says where it may run; empty for anywhere."""
    spec: Manifest = {}
    if node_selector:
        spec["nodeSelector"] = dict(node_selector)
    if tolerations:
        spec["tolerations"] = [
            toleration.model_dump(by_alias=True, exclude_none=True) for toleration in tolerations
        ]
    return spec
