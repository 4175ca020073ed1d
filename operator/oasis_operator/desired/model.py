"""Where the weights are: what to mount, what to set, and what the engine is told."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath

from oasis_operator.api.spec import Model, SecretKey
from oasis_operator.desired.metadata import Manifest

MODEL_MOUNT = "/mnt/model"
VOLUME = "model"


@dataclass(frozen=True)
class ModelSource:
    """``path`` is the engine's ``model``; ``told`` says in the user's own words what that is, and
    ``short`` fits a column of a table."""

    path: str
    told: str
    short: str
    args: tuple[str, ...] = ()
    env: tuple[Manifest, ...] = ()
    volumes: tuple[Manifest, ...] = ()
    mounts: tuple[Manifest, ...] = ()


_OFFLINE: Manifest = {"name": "HF_HUB_OFFLINE", "value": "1"}
_MOUNT: Manifest = {"name": VOLUME, "mountPath": MODEL_MOUNT, "readOnly": True}


def model_source(model: Model) -> ModelSource:
    """The one source that the spec names."""
    if model.image is not None:
        path = model.image.path
        return ModelSource(
            path, f"spec.model.image.path {path}", PurePosixPath(path).name, env=(_OFFLINE,)
        )
    if model.host_path is not None:
        path = model.host_path.path
        # Without a type a missing folder would be created on the node, empty.
        folder = {"hostPath": {"path": path, "type": "Directory"}}
        return _mounted(folder, None, "hostPath.path", path)
    if model.pvc is not None:
        claim = model.pvc.claim_name
        volume = {"persistentVolumeClaim": {"claimName": claim, "readOnly": True}}
        return _mounted(volume, model.pvc.path, "pvc", claim)
    if model.image_volume is not None:
        image = model.image_volume
        policy = {"pullPolicy": image.pull_policy} if image.pull_policy else {}
        volume = {"image": {"reference": image.reference, **policy}}
        return _mounted(volume, image.path, "imageVolume", image.reference)
    if model.hub is not None:
        hub, token = model.hub, model.hub.token_secret
        return ModelSource(
            hub.name,
            f"spec.model.hub.name {hub.name}",
            hub.name,
            args=("--revision", hub.revision) if hub.revision else (),
            env=(secret_env("HF_TOKEN", token),) if token else (),
        )
    raise AssertionError("a Model has one source")


def _mounted(volume: Manifest, path: str | None, field: str, named: str) -> ModelSource:
    """A folder of a volume, where the spec's ``field`` names the volume."""
    inside = f"/{path}" if path else ""
    return ModelSource(
        f"{MODEL_MOUNT}{inside}",
        f"spec.model.{field} {named}{inside}",
        PurePosixPath(path or named).name,
        env=(_OFFLINE,),
        volumes=({"name": VOLUME, **volume},),
        mounts=(_MOUNT,),
    )


def secret_env(name: str, secret: SecretKey) -> Manifest:
    """An environment variable from one key of a Secret."""
    return {
        "name": name,
        "valueFrom": {"secretKeyRef": {"name": secret.name, "key": secret.key}},
    }
