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
    """The one source that the spec names.

    Raises:
        ValueError: none or several are named; the CRD's rules refuse such a spec.
    """
    match model:
        case Model(image=image, host_path=None, pvc=None, image_volume=None, hub=None) if image:
            return ModelSource(
                image.path,
                f"spec.model.image.path {image.path}",
                PurePosixPath(image.path).name,
                env=(_OFFLINE,),
            )
        case Model(image=None, host_path=host_path, pvc=None, image_volume=None, hub=None) if (
            host_path
        ):
            return ModelSource(
                MODEL_MOUNT,
                f"spec.model.hostPath.path {host_path.path}",
                PurePosixPath(host_path.path).name,
                env=(_OFFLINE,),
                # Without a type a missing folder would be created on the node, empty.
                volumes=(
                    {"name": VOLUME, "hostPath": {"path": host_path.path, "type": "Directory"}},
                ),
                mounts=(_MOUNT,),
            )
        case Model(image=None, host_path=None, pvc=pvc, image_volume=None, hub=None) if pvc:
            inside = f"/{pvc.path}" if pvc.path else ""
            return ModelSource(
                f"{MODEL_MOUNT}{inside}",
                f"spec.model.pvc {pvc.claim_name}{inside}",
                PurePosixPath(pvc.path or pvc.claim_name).name,
                env=(_OFFLINE,),
                volumes=(
                    {
                        "name": VOLUME,
                        "persistentVolumeClaim": {"claimName": pvc.claim_name, "readOnly": True},
                    },
                ),
                mounts=(_MOUNT,),
            )
        case Model(image=None, host_path=None, pvc=None, image_volume=image, hub=None) if image:
            inside = f"/{image.path}" if image.path else ""
            policy = {"pullPolicy": image.pull_policy} if image.pull_policy else {}
            return ModelSource(
                f"{MODEL_MOUNT}{inside}",
                f"spec.model.imageVolume {image.reference}{inside}",
                PurePosixPath(image.path or image.reference).name,
                env=(_OFFLINE,),
                volumes=({"name": VOLUME, "image": {"reference": image.reference, **policy}},),
                mounts=(_MOUNT,),
            )
        case Model(image=None, host_path=None, pvc=None, image_volume=None, hub=hub) if hub:
            token = hub.token_secret
            return ModelSource(
                hub.name,
                f"spec.model.hub.name {hub.name}",
                hub.name,
                args=("--revision", hub.revision) if hub.revision else (),
                env=(secret_env("HF_TOKEN", token),) if token else (),
            )
    raise ValueError(
        "spec.model must name exactly one of image, hostPath, pvc, imageVolume and hub"
    )


def secret_env(name: str, secret: SecretKey) -> Manifest:
    """An environment variable from one key of a Secret."""
    return {
        "name": name,
        "valueFrom": {"secretKeyRef": {"name": secret.name, "key": secret.key}},
    }
