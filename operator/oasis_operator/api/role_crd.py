"""The CustomResourceDefinition of OasisRole: what an external autoscaler scales.

One for each role, under a name that no revision is in, made by the operator where
``spec.autoscaling.owner`` is ``external``. All that it has is the ``scale`` subresource.
"""

from __future__ import annotations

from typing import Any

from oasis_operator.api.autoscaling import MOST_REPLICAS
from oasis_operator.api.crd import GROUP, VERSION

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
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": spec,
            "status": status,
        },
    }
    metadata: dict[str, Any] = {"name": ROLE_CRD_NAME}
    if annotations:
        metadata["annotations"] = annotations
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": metadata,
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": ROLE_KIND,
                "listKind": f"{ROLE_KIND}List",
                "plural": ROLE_PLURAL,
                "singular": ROLE_KIND.lower(),
                "categories": ["oasiskv"],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "additionalPrinterColumns": [
                        _column("Desired", ".spec.replicas"),
                        _column("Current", ".status.replicas"),
                    ],
                    "subresources": {
                        "status": {},
                        "scale": {
                            "specReplicasPath": ".spec.replicas",
                            "statusReplicasPath": ".status.replicas",
                            "labelSelectorPath": ".status.selector",
                        },
                    },
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


def _column(name: str, path: str) -> dict[str, Any]:
    return {"name": name, "type": "integer", "jsonPath": path}
