"""The CustomResourceDefinition of OasisDeployment, built from the models."""

from __future__ import annotations

from typing import Any

from oasis_operator.api.base import rule
from oasis_operator.api.definition import GROUP, OBJECT_FIELDS, definition
from oasis_operator.api.spec import Spec
from oasis_operator.api.status import Status
from oasis_operator.api.structural import structural

KIND = "OasisDeployment"
PLURAL = "oasisdeployments"
CRD_NAME = f"{PLURAL}.{GROUP}"

MAX_NAME = 40
"""Leaves room in the 63 characters of a Service name and of a label for what is appended."""
MAX_NAME_OF_GROUPS = 31
"""The same, where a LeaderWorkerSet appends the number of a group, and its StatefulSet a hash."""


def _column(name: str, path: str, kind: str = "string", wide: bool = False) -> dict[str, Any]:
    return {"name": name, "type": kind, "jsonPath": path, "priority": int(wide)}


def _condition(kind: str) -> str:
    return f'.status.conditions[?(@.type=="{kind}")]'


COLUMNS = [
    _column("Model", ".status.model"),
    _column("Ready", f"{_condition('Ready')}.status"),
    _column("Reason", f"{_condition('Ready')}.reason"),
    _column("Prefill", ".status.prefill.ready"),
    _column("Decode", ".status.decode.ready"),
    _column("Mode", ".status.mode"),
    _column("Hit", ".status.hitRate"),
    _column("Age", ".metadata.creationTimestamp", "date"),
    _column("Endpoint", ".status.endpoint", wide=True),
    _column("NUMA", f"{_condition('NUMAAligned')}.status", wide=True),
    _column("Revision", ".status.servingRevision", wide=True),
]

NAME_RULES = [
    rule(
        f"self.metadata.name.size() <= {MAX_NAME}",
        f"use a name of at most {MAX_NAME} characters: pods and Services are named after it",
    ),
    rule(
        f"self.spec.engine.nodes == 1 || self.metadata.name.size() <= {MAX_NAME_OF_GROUPS}",
        f"use a name of at most {MAX_NAME_OF_GROUPS} characters for engines on several nodes: "
        "each of their groups is named after it",
    ),
    rule(
        "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
        "use a name of lower-case letters, digits and '-' that begins with a letter: "
        "Services are named after it",
    ),
]


def custom_resource_definition(annotations: dict[str, str] | None = None) -> dict[str, Any]:
    """The whole CRD as a manifest."""
    schema = {
        "type": "object",
        "description": "One model served by OasisKV: engines, router, and what ties them together.",
        "required": ["spec"],
        "x-kubernetes-validations": NAME_RULES,
        "properties": {
            **OBJECT_FIELDS,
            "spec": structural(Spec.model_json_schema(by_alias=True)),
            "status": structural(Status.model_json_schema(by_alias=True)),
        },
    }
    return definition(
        KIND, PLURAL, schema, COLUMNS, {"status": {}}, annotations, short_names=["odep"]
    )
