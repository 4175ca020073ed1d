"""Events about an OasisDeployment."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from oasis_operator.api.crd import API_VERSION, KIND
from oasis_operator.desired.metadata import Manifest
from oasis_operator.desired.revision import content_hash
from oasis_operator.reconcile.conditions import Draft

COMPONENT = "oasiskv-operator"
MESSAGE_LIMIT = 1024
"""The API server refuses longer messages."""


def event(metadata: Mapping[str, Any], draft: Draft, now: datetime) -> Manifest:
    """A warning whose name follows from what it says: telling it again creates no second one."""
    name, namespace = metadata["name"], metadata["namespace"]
    told = content_hash([metadata["uid"], draft.type, draft.reason, draft.message], 16)
    when = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{name}.{told}", "namespace": namespace},
        "involvedObject": {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "name": name,
            "namespace": namespace,
            "uid": metadata["uid"],
        },
        "type": "Warning",
        "reason": draft.reason,
        "message": f"{draft.type}: {draft.message}"[:MESSAGE_LIMIT],
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "firstTimestamp": when,
        "lastTimestamp": when,
        "count": 1,
    }
