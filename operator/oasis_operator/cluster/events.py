"""Events about an OasisDeployment."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from oasis_operator.api.crd import KIND
from oasis_operator.api.definition import API_VERSION
from oasis_operator.desired.metadata import Manifest
from oasis_operator.desired.revision import content_hash
from oasis_operator.reconcile.conditions import Draft
from oasis_operator.reconcile.decisions import Decision

COMPONENT = "oasiskv-operator"
MESSAGE_LIMIT = 1024
"""The API server refuses longer messages."""


def alarm(metadata: Mapping[str, Any], draft: Draft, now: datetime) -> Manifest:
    """A warning whose name follows from what it says: telling it again counts it once more."""
    identity = [metadata["uid"], draft.type, draft.reason, draft.message]
    message = f"{draft.type}: {draft.message}"
    return _event(metadata, identity, "Warning", draft.reason, message, now)


def decision_event(metadata: Mapping[str, Any], decision: Decision, now: datetime) -> Manifest:
    """As :func:`alarm`, but told again when it is decided again for another spec."""
    identity = [metadata["uid"], metadata["generation"], decision.reason, decision.message]
    kind = "Warning" if decision.warning else "Normal"
    return _event(metadata, identity, kind, decision.reason, decision.message, now)


def told_again(event: Manifest, found: Manifest) -> Manifest:
    """What telling ``event`` changes in ``found``, which has told the same before; nothing where
    the same pass, repeated because it was not finished, has told it."""
    version = event["involvedObject"]["resourceVersion"]
    if found["involvedObject"].get("resourceVersion") == version:
        return {}
    return {
        "involvedObject": {"resourceVersion": version},
        "count": (found.get("count") or 1) + 1,
        "lastTimestamp": event["lastTimestamp"],
    }


def _event(
    metadata: Mapping[str, Any],
    identity: list[Any],
    kind: str,
    reason: str,
    message: str,
    now: datetime,
) -> Manifest:
    name, namespace = metadata["name"], metadata["namespace"]
    when = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{name}.{content_hash(identity, 16)}", "namespace": namespace},
        "involvedObject": {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "name": name,
            "namespace": namespace,
            "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"],
        },
        "type": kind,
        "reason": reason,
        "message": message[:MESSAGE_LIMIT],
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "firstTimestamp": when,
        "lastTimestamp": when,
        "count": 1,
    }
