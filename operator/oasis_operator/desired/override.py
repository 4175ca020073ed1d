"""Strategic merge of the user's ``podTemplate`` over what the operator builds."""

from __future__ import annotations

from typing import Any

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


def merged(base: Any, override: Any) -> Any:
    """``override`` over ``base``: objects by field, lists by merge key, ``None`` deletes."""
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
        identity = item.get(key)
        items[identity] = merged(items[identity], item) if identity in items else item
    return list(items.values())
