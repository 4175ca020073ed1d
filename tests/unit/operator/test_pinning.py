from __future__ import annotations

from typing import Any

import pytest

from oasis_operator.topology.pinning import pinning_problems

WHOLE = {"cpu": "8", "memory": "32Gi"}


def container(name: str = "engine", **resources: Any) -> dict[str, Any]:
    return {"name": name, "resources": {"requests": WHOLE, "limits": WHOLE, **resources}}


def problems(*containers: dict[str, Any], **spec: Any) -> str:
    return "; ".join(pinning_problems({"spec": {"containers": list(containers), **spec}}))


@pytest.mark.parametrize("cpu", ["8", 8, "8000m", "1"])
def test_equal_whole_cpus_in_every_container_are_pinned(cpu: int | str) -> None:
    limits = {"cpu": cpu, "memory": "32Gi", "hugepages-1Gi": "4Gi", "nvidia.com/gpu": "1"}
    assert problems(container(requests=limits, limits=limits)) == ""


def test_a_limit_is_its_own_request() -> None:
    assert problems(container(requests={})) == ""


@pytest.mark.parametrize(
    ("resources", "told"),
    [
        ({"limits": {}}, "container engine has no cpu limit"),
        ({"limits": {"cpu": "8"}}, "container engine has no memory limit"),
        ({"requests": {"cpu": "4"}}, "container engine requests 4 cpu of a limit of 8"),
        ({"requests": {"memory": "1Gi"}}, "requests 1Gi memory of a limit of 32Gi"),
        (
            {"requests": {}, "limits": {"cpu": "1500m", "memory": "1Gi"}},
            "container engine has 1500m CPUs, which is no whole number",
        ),
        ({"requests": {}, "limits": {"cpu": "0", "memory": "1Gi"}}, "no whole number"),
    ],
)
def test_what_loses_alignment_is_named(resources: dict[str, Any], told: str) -> None:
    assert told in problems(container(**resources))


def test_one_container_beside_the_engine_is_enough_to_lose_it() -> None:
    assert "container proxy has no cpu limit" in problems(container(), {"name": "proxy"})
    assert "container setup" in problems(container(), initContainers=[{"name": "setup"}])
