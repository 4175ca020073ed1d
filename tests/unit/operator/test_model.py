from __future__ import annotations

from typing import Any

import pytest

from oasis_operator.api.spec import Model
from oasis_operator.desired.model import model_source


def source(**given: Any) -> Any:
    return model_source(Model.model_validate(given))


def test_a_model_in_the_image_needs_no_volume() -> None:
    found = source(image={"path": "/models/tiny"})
    assert (found.path, found.volumes, found.mounts) == ("/models/tiny", (), ())


def test_a_host_path_must_be_a_folder_and_is_mounted_read_only() -> None:
    found = source(hostPath={"path": "/srv/tiny"})
    assert found.volumes[0]["hostPath"] == {"path": "/srv/tiny", "type": "Directory"}
    assert found.mounts[0]["readOnly"] is True
    assert found.path == found.mounts[0]["mountPath"]
    assert "/srv/tiny" in found.told


def test_a_folder_inside_a_claim_is_below_the_mount() -> None:
    found = source(pvc={"claimName": "weights", "path": "llama/8b"})
    assert found.path == f"{found.mounts[0]['mountPath']}/llama/8b"
    assert found.volumes[0]["persistentVolumeClaim"] == {"claimName": "weights", "readOnly": True}


def test_an_image_of_its_own_is_mounted_by_the_kubelet() -> None:
    given = {"reference": "models/llama:8b", "path": "weights", "pullPolicy": "Always"}
    found = source(imageVolume=given)
    assert found.path == f"{found.mounts[0]['mountPath']}/weights"
    image = {"reference": "models/llama:8b", "pullPolicy": "Always"}
    assert found.volumes == ({"name": "model", "image": image},)
    assert "models/llama:8b" in found.told


def test_a_hub_model_has_its_token_from_the_secret_and_its_revision_as_argument() -> None:
    found = source(
        hub={"name": "a/b", "revision": "abc", "tokenSecret": {"name": "hub", "key": "token"}}
    )
    assert found.args == ("--revision", "abc")
    assert found.env[0]["valueFrom"]["secretKeyRef"] == {"name": "hub", "key": "token"}


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        ("image", {"path": "/m"}),
        ("hostPath", {"path": "/m"}),
        ("pvc", {"claimName": "c"}),
        ("imageVolume", {"reference": "m"}),
    ],
)
def test_a_local_model_never_asks_the_hub(kind: str, given: dict[str, str]) -> None:
    assert {"name": "HF_HUB_OFFLINE", "value": "1"} in source(**{kind: given}).env


@pytest.mark.parametrize(
    "given", [{}, {"image": {"path": "/a"}, "hostPath": {"path": "/b"}}], ids=["none", "two"]
)
def test_exactly_one_source_is_needed(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="exactly one"):
        source(**given)
