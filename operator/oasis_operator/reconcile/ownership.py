"""Whose an object is: names follow from that of the OasisDeployment, and somebody may have had
one before. What the OasisDeployment does not control is never written and never deleted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from oasis_operator.api.crd import KIND
from oasis_operator.api.definition import GROUP
from oasis_operator.desired.metadata import COMPONENT_LABEL, DEPLOYMENT_LABEL, Manifest
from oasis_operator.desired.pod_maker import pod_templates
from oasis_operator.reconcile.conditions import READY, Draft
from oasis_operator.reconcile.observed import ObjectKey

NAME_TAKEN = "NameTaken"
WAITING_FOR_DELETION = "WaitingForDeletion"


@dataclass(frozen=True)
class TakenName:
    """A name that the OasisDeployment needs, and that an object has which is not its own.

    ``leaving`` ones go by themselves; others only somebody who knows them can take away.
    """

    key: ObjectKey
    leaving: bool

    @classmethod
    def of(cls, body: Manifest, name: str, uid: str) -> TakenName:
        """What ``body`` is to the OasisDeployment with this name and uid, which it is not of.

        The garbage collector takes the objects of an earlier OasisDeployment of the same name.
        """
        earlier = any(
            reference["kind"] == KIND
            and reference["apiVersion"].partition("/")[0] == GROUP
            and reference["name"] == name
            and reference["uid"] != uid
            for reference in _controllers(body)
        )
        return cls(ObjectKey.of(body), earlier or "deletionTimestamp" in body["metadata"])


def controlled_by(body: Mapping[str, Any], uid: str) -> bool:
    """Whether the OasisDeployment with ``uid`` controls an object."""
    return any(reference["uid"] == uid for reference in _controllers(body))


def needs(manifest: Manifest) -> frozenset[ObjectKey]:
    """Objects without which this one would do something else than it is made for.

    What pods run with and are guarded by, and what a RoleBinding binds.
    """
    return frozenset(_needs(manifest))


def with_taken_names(drafts: Iterable[Draft], taken_names: Iterable[TakenName]) -> list[Draft]:
    """Ready as long as something is in the way; the other conditions as they are."""
    told = _told(list(taken_names))
    return [told if told and draft.type == READY else draft for draft in drafts]


def _told(taken_names: list[TakenName]) -> Draft | None:
    taken = [name.key for name in taken_names if not name.leaving]
    leaving = [name.key for name in taken_names if name.leaving]
    if taken:
        whose, them = (
            ("an object of somebody else has", "it")
            if len(taken) == 1
            else ("objects of others have", "them")
        )
        return Draft(
            READY,
            "False",
            NAME_TAKEN,
            f"{whose} a name that is needed: {_names(taken)}; delete or rename {them}, or rename "
            "the OasisDeployment",
            alarming=True,
        )
    if leaving:
        return Draft(
            READY,
            "False",
            WAITING_FOR_DELETION,
            f"these were here before this OasisDeployment and are about to go: {_names(leaving)}",
        )
    return None


def _names(keys: Iterable[ObjectKey]) -> str:
    return ", ".join(f"{key.kind} {key.name}" for key in sorted(keys))


def _needs(manifest: Manifest) -> Iterator[ObjectKey]:
    if manifest["kind"] == "RoleBinding":
        for item in (manifest["roleRef"], *manifest["subjects"]):
            yield ObjectKey(item["kind"], item["name"])
    for template in pod_templates(manifest):
        labels, pod = manifest["metadata"]["labels"], template["spec"]
        yield ObjectKey("NetworkPolicy", f"{labels[DEPLOYMENT_LABEL]}-{labels[COMPONENT_LABEL]}")
        yield ObjectKey("ServiceAccount", pod.get("serviceAccountName") or "")
        for volume in pod.get("volumes") or ():
            yield ObjectKey("ConfigMap", (volume.get("configMap") or {}).get("name", ""))
        for claim in pod.get("resourceClaims") or ():
            yield ObjectKey("ResourceClaimTemplate", claim.get("resourceClaimTemplateName") or "")


def _controllers(body: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for reference in body["metadata"].get("ownerReferences") or ():
        if reference.get("controller"):
            yield reference
