"""Strategic merge of the user's ``podTemplate`` over what the operator builds."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from oasis_operator.api.problems import problems_of

# The merge keys of the pod's lists, as in the Kubernetes API; other lists are replaced whole.
_MERGE_KEYS = {
    "containers": "name",
    "initContainers": "name",
    "ephemeralContainers": "name",
    "volumes": "name",
    "env": "name",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "ports": "containerPort",
    "imagePullSecrets": "name",
    "hostAliases": "ip",
    "topologySpreadConstraints": "topologyKey",
    "resourceClaims": "name",
}


class OverrideError(ValueError):
    """A ``podTemplate`` that makes no pod, in a sentence with its path."""


class _Read(BaseModel):
    """What the operator itself reads of a pod; the rest is for the API server to judge."""

    model_config = ConfigDict(extra="ignore", strict=True)


class _Resources(_Read):
    requests: dict[str, Any] | None = None
    limits: dict[str, Any] | None = None


class _Container(_Read):
    name: str
    resources: _Resources | None = None


class _Named(_Read):
    name: str


class _PodSpec(_Read):
    containers: list[_Container] = Field(min_length=1)
    initContainers: list[_Container] | None = None  # noqa: N815 - the API's own name
    volumes: list[_Named]


class _Metadata(_Read):
    labels: dict[str, str]
    annotations: dict[str, str] | None = None


class _Template(_Read):
    metadata: _Metadata
    spec: _PodSpec


def overridden(template: dict[str, Any], override: dict[str, Any]) -> dict[str, Any]:
    """The pod template with the user's override.

    Raises:
        OverrideError: the result has no containers, volumes or labels any more, or not of the
            shape that they have in a pod.
    """
    result: dict[str, Any] = merged(template, override)
    try:
        _Template.model_validate(result)
    except ValidationError as invalid:
        raise OverrideError(
            f"{problems_of(invalid)}: write it as in a pod, or leave it out"
        ) from invalid
    return result


def merged(base: Any, override: Any) -> Any:
    """``override`` over ``base``: objects by field, lists by merge key, ``None`` deletes.

    Raises:
        OverrideError: an item of a list has no value for the key that it is merged by.
    """
    if isinstance(base, dict) and isinstance(override, dict):
        out = dict(base)
        for key, value in override.items():
            if value is None:
                out.pop(key, None)
            elif key in out:
                out[key] = _merged_field(key, out[key], value)
            else:
                out[key] = value
        return out
    return override


def _merged_field(name: str, base: Any, override: Any) -> Any:
    key = _MERGE_KEYS.get(name)
    if key is None or not isinstance(base, list) or not isinstance(override, list):
        return merged(base, override)
    items = {item[key]: item for item in base}
    for item in override:
        identity = item.get(key) if isinstance(item, dict) else None
        if not isinstance(identity, str | int):
            raise OverrideError(f"every item of {name} needs a {key}: write one, as in a pod")
        items[identity] = merged(items[identity], item) if identity in items else item
    return list(items.values())
