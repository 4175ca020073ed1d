"""The CustomResourceDefinition of OasisRole: what an external autoscaler scales.

One for each role, under a name that no revision is in, made by the operator where
``spec.autoscaling.owner`` is ``external``. All that it has is the ``scale`` subresource.
"""

from __future__ import annotations

from typing import Any

from oasis_operator.api.autoscaling import MOST_REPLICAS
from oasis_operator.api.definition import GROUP, OBJECT_FIELDS, definition

ROLE_KIND = "OasisRole"
ROLE_PLURAL = "oasisroles"
ROLE_CRD_NAME = f"{ROLE_PLURAL}.{GROUP}"


def role_definition(annotations: dict[str, str] | None = None) -> dict[str, Any]:
    """The whole CRD as a manifest."""
    spec = {
        "type": "object",
        "description": "What is asked for.",
        "properties": {
            "replicas": {
                "type": "integer",
                "description": "Pods of the role. The operator writes the first number only.",
                "minimum": 1,
                "maximum": MOST_REPLICAS,
            }
        },
    }
    status = {
        "type": "object",
        "description": "What there is.",
        "properties": {
            "replicas": {"type": "integer", "description": "Pods of the revision that serves."},
            "selector": {"type": "string", "description": "Labels that choose these pods."},
        },
    }
    schema = {
        "type": "object",
        "description": "The replicas of one role of an OasisDeployment, for other autoscalers.",
        "properties": {
            **OBJECT_FIELDS,
            "spec": spec,
            "status": status,
        },
    }
    subresources = {
        "status": {},
        "scale": {
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        },
    }
    columns = [_column("Desired", ".spec.replicas"), _column("Current", ".status.replicas")]
    return definition(ROLE_KIND, ROLE_PLURAL, schema, columns, subresources, annotations)


def _column(name: str, path: str) -> dict[str, Any]:
    return {"name": name, "type": "integer", "jsonPath": path}
