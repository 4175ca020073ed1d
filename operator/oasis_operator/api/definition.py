"""What the CustomResourceDefinitions of OasisKV have in common."""

from __future__ import annotations

from typing import Any

GROUP = "oasiskv.io"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"

OBJECT_FIELDS: dict[str, Any] = {
    "apiVersion": {"type": "string"},
    "kind": {"type": "string"},
    "metadata": {"type": "object"},
}
"""Properties of the schema of any object."""


def definition(
    kind: str,
    plural: str,
    schema: dict[str, Any],
    columns: list[dict[str, Any]],
    subresources: dict[str, Any],
    annotations: dict[str, str] | None,
    short_names: list[str] | None = None,
) -> dict[str, Any]:
    """The whole CRD as a manifest, of one version, for objects in namespaces."""
    metadata: dict[str, Any] = {"name": f"{plural}.{GROUP}"}
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
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": plural,
                "singular": kind.lower(),
                **({"shortNames": short_names} if short_names else {}),
                "categories": ["oasiskv"],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "additionalPrinterColumns": columns,
                    "subresources": subresources,
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }
