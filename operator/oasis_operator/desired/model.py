"""Where the weights are: what to mount, what to set, and what the engine is told."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath

from oasis_operator.api.spec import Model, SecretKey, Spec
from oasis_operator.desired.metadata import Manifest


@dataclass(frozen=True)
class ModelSource:
    """Where one set of weights is.

    ``path`` is what the engine loads, a folder or a name on the hub; ``told`` says in the user's
    own words what that is, and ``short`` fits a column of a table.
    """

    path: str
    told: str
    short: str
    hub: bool = False
    revision: str | None = None
    token: SecretKey | None = None
    volumes: tuple[Manifest, ...] = ()
    mounts: tuple[Manifest, ...] = ()

    @property
    def mount_path(self) -> str | None:
        """Where its volume is mounted, if it has one."""
        return self.mounts[0]["mountPath"] if self.mounts else None


def sources(spec: Spec) -> tuple[ModelSource, ...]:
    """All that an engine loads: the model, and draft heads with weights of their own."""
    heads = heads_source(spec)
    return (model_source(spec), *((heads,) if heads else ()))


def model_source(spec: Spec) -> ModelSource:
    """The one source that the spec names."""
    return _source(spec.model, "spec.model", "model")


def heads_source(spec: Spec) -> ModelSource | None:
    """None: there are no heads, or they are in the model."""
    heads = spec.kv.prediction.heads
    if heads is None or heads.model is None:
        return None
    return _source(heads.model, "spec.kv.prediction.heads.model", "heads")


def hub_environment(loaded: tuple[ModelSource, ...]) -> list[Manifest]:
    """Access to the hub for an engine that loads these, or that it needs none."""
    if not any(source.hub for source in loaded):
        return [{"name": "HF_HUB_OFFLINE", "value": "1"}]
    tokens = [source.token for source in loaded if source.token is not None]
    return [secret_env("HF_TOKEN", tokens[0])] if tokens else []


def _source(model: Model, at: str, volume_name: str) -> ModelSource:
    def mounted(volume: Manifest, path: str | None, field: str, named: str) -> ModelSource:
        """A folder of a volume, where the spec's ``field`` names the volume."""
        inside = f"/{path}" if path else ""
        mount = f"/mnt/{volume_name}"
        return ModelSource(
            f"{mount}{inside}",
            f"{at}.{field} {named}{inside}",
            PurePosixPath(path or named).name,
            volumes=({"name": volume_name, **volume},),
            mounts=({"name": volume_name, "mountPath": mount, "readOnly": True},),
        )

    if model.image is not None:
        path = model.image.path
        return ModelSource(path, f"{at}.image.path {path}", PurePosixPath(path).name)
    if model.host_path is not None:
        path = model.host_path.path
        # Without a type a missing folder would be created on the node, empty.
        folder = {"hostPath": {"path": path, "type": "Directory"}}
        return mounted(folder, None, "hostPath.path", path)
    if model.pvc is not None:
        claim = model.pvc.claim_name
        volume = {"persistentVolumeClaim": {"claimName": claim, "readOnly": True}}
        return mounted(volume, model.pvc.path, "pvc", claim)
    if model.image_volume is not None:
        image = model.image_volume
        policy = {"pullPolicy": image.pull_policy} if image.pull_policy else {}
        volume = {"image": {"reference": image.reference, **policy}}
        return mounted(volume, image.path, "imageVolume", image.reference)
    if model.hub is not None:
        hub = model.hub
        return ModelSource(
            hub.name,
            f"{at}.hub.name {hub.name}",
            hub.name,
            hub=True,
            revision=hub.revision,
            token=hub.token_secret,
        )
    raise AssertionError("a Model has one source")


def secret_env(name: str, secret: SecretKey) -> Manifest:
    """An environment variable from one key of a Secret."""
    return {
        "name": name,
        "valueFrom": {"secretKeyRef": {"name": secret.name, "key": secret.key}},
    }
