from __future__ import annotations

from typing import Any

import pytest

from oasis_operator.api.spec import Spec
from oasis_operator.desired.model import (
    ModelSource,
    heads_source,
    hub_environment,
    model_source,
    sources,
)

TOKEN = {"name": "hub", "key": "token"}
OFFLINE = {"name": "HF_HUB_OFFLINE", "value": "1"}


def source(**given: Any) -> ModelSource:
    return model_source(Spec.model_validate({"model": given}))


def with_heads(heads: dict[str, Any], **model: Any) -> Spec:
    kv = {"prediction": {"method": "auto", "heads": heads}}
    return Spec.model_validate({"model": model or {"image": {"path": "/m"}}, "kv": kv})


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


def test_a_hub_model_has_its_token_from_the_secret_and_its_revision() -> None:
    found = source(hub={"name": "a/b", "revision": "abc", "tokenSecret": TOKEN})
    assert (found.path, found.revision) == ("a/b", "abc")
    assert hub_environment((found,))[0]["valueFrom"]["secretKeyRef"] == TOKEN


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
    assert hub_environment((source(**{kind: given}),)) == [OFFLINE]


@pytest.mark.parametrize(
    "given", [{}, {"image": {"path": "/a"}, "hostPath": {"path": "/b"}}], ids=["none", "two"]
)
def test_exactly_one_source_is_needed(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="exactly one"):
        source(**given)


def test_heads_are_mounted_beside_the_model() -> None:
    heads = {"kind": "eagle", "model": {"pvc": {"claimName": "weights", "path": "heads"}}}
    spec = with_heads(heads, pvc={"claimName": "weights"})
    model, found = sources(spec)
    assert found == heads_source(spec)
    assert found.path == f"{found.mounts[0]['mountPath']}/heads"
    assert "spec.kv.prediction.heads.model.pvc" in found.told
    names = [volume["name"] for volume in (*model.volumes, *found.volumes)]
    paths = [mount["mountPath"] for mount in (*model.mounts, *found.mounts)]
    assert len(set(names)) == len(set(paths)) == 2


def test_heads_inside_the_model_are_no_source_of_their_own() -> None:
    assert len(sources(with_heads({"kind": "mtp"}))) == 1


def test_heads_on_the_hub_are_downloaded_for_a_local_model() -> None:
    hub = {"name": "a/heads", "revision": "r", "tokenSecret": TOKEN}
    loaded = sources(with_heads({"kind": "eagle3", "model": {"hub": hub}}))
    environment = hub_environment(loaded)
    assert OFFLINE not in environment
    assert [variable["name"] for variable in environment] == ["HF_TOKEN"]
