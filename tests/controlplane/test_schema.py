"""The CRD on a real API server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.controlplane.world import World, spec

ROOT = Path(__file__).parents[2]


def test_a_plain_kubectl_apply_takes_the_crd(world: World) -> None:
    assert "configured" in world.plane.kubectl("apply", "-f", str(ROOT / "crds"))


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.yaml")), ids=lambda p: p.name)
def test_the_examples_are_accepted(world: World, path: Path) -> None:
    body = yaml.safe_load(path.read_text())
    assert world.refused(body["metadata"]["name"], body["spec"]) == ""


MEMORY = {"memory": "8Gi"}
NODES = spec(
    prefill=None,
    engine={"tensorParallelSize": 2, "nodes": 2},
    decode={"devices": {"gpu": {"count": 1}}},
)
BOTH_SCALED = {"prefill": {"maxReplicas": 4}, "decode": {"maxReplicas": 4}}
PINNED = {"numa": {"mode": "kubelet", "policy": "required"}}
BY_KUBELET = {"numa": {"mode": "kubelet"}}
PINNABLE = {"resources": {"limits": {"cpu": "2", **MEMORY}, "requests": {"cpu": 2}}}


def on_the_hub(token: str) -> dict[str, Any]:
    return {"hub": {"name": "a/b", "tokenSecret": {"name": token, "key": "token"}}}


OURS = on_the_hub("ours")


def heads(
    kind: str,
    model: dict[str, Any] | None = OURS,
    served: dict[str, Any] | None = None,
    prefill: dict[str, Any] | None = None,
    prediction: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """The spec of one engine with draft heads."""
    given = {"kind": kind} | ({"model": model} if model else {})
    kv = {"prediction": {"method": "auto", "heads": given} | (prediction or {})}
    return spec(prefill=prefill, kv=kv, **({"model": served} if served else {}))


def bounded(
    prefill: tuple[int, int], decode: tuple[int, int], ratio: dict[str, str], **scaling: Any
) -> dict[str, Any]:
    """Both roles with least and most pods, and a ratio."""
    roles = {"prefill": prefill, "decode": decode}
    bounds = {
        role: {"minReplicas": least, "maxReplicas": most} for role, (least, most) in roles.items()
    }
    return spec(autoscaling={**bounds, "ratio": ratio, **scaling})


@pytest.mark.parametrize(
    "given",
    [
        bounded((1, 2), (4, 9), {"min": "1:2", "max": "1:1"}, gpuBudget=5),
        bounded((4, 4), (1, 1), {"max": "4:1"}),
        NODES | {"autoscaling": {"decode": {"maxReplicas": 4}, "gpuBudget": 2}},
        spec(updates={"strategy": "Recreate", "maxSurge": 0}),
        spec(updates={"maxSurge": 0, "maxUnavailable": "50%"}),
    ],
    ids=("just the ratio", "of four to one", "just the budget", "Recreate", "without surge"),
)
def test_bounds_that_can_be_kept_are_taken(world: World, given: dict[str, Any]) -> None:
    assert world.refused("bounded", given) == ""


def sharded(ranks: int, memory: str, nodes: int = 1) -> dict[str, Any]:
    """The spec of one engine of ranks that have 4Gi each."""
    return spec(
        prefill=None,
        engine={"tensorParallelSize": ranks, "nodes": nodes},
        kv={"hostSize": "4Gi"},
        decode={"resources": {"limits": {"memory": memory}}},
    )


@pytest.mark.parametrize(
    "given",
    [sharded(8, "33Gi"), sharded(8, "16385Mi", nodes=2), sharded(1, "4294967297")],
    ids=("one pod", "two pods", "one rank"),
)
def test_a_limit_over_what_all_ranks_of_a_pod_allocate_is_taken(
    world: World, given: dict[str, Any]
) -> None:
    assert world.refused("sharded", given) == ""


@pytest.mark.parametrize(
    "given",
    [
        heads("mtp", model=None),
        heads("eagle3", prediction={"method": "draft", "draftTokens": 4}),
        heads("eagle", served=OURS),
        heads("eagle", model={"pvc": {"claimName": "weights"}}, served=OURS),
    ],
    ids=("in the model", "drafts only", "one token", "from a volume"),
)
def test_draft_heads_are_taken(world: World, given: dict[str, Any]) -> None:
    assert world.refused("drafting", given) == ""


def test_a_pod_that_the_kubelet_can_pin_is_taken(world: World) -> None:
    assert world.refused("pinned", spec(topology=PINNED, prefill=PINNABLE, decode=PINNABLE)) == ""


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (spec(autoscaling={}), "write autoscaling.decode.maxReplicas"),
        (
            spec(autoscaling={"decode": {"maxReplicas": 4}}),
            "write autoscaling.prefill exactly if there is spec.prefill",
        ),
        (
            spec(prefill=None, autoscaling={"decode": {"minReplicas": 5, "maxReplicas": 4}}),
            "minReplicas must not exceed maxReplicas",
        ),
        (
            spec(autoscaling={**BOTH_SCALED, "gpuBudget": 1}),
            "autoscaling.gpuBudget is under the GPUs of minReplicas",
        ),
        (
            spec(autoscaling={**BOTH_SCALED, "ratio": {"min": "2:1", "max": "1:4"}}),
            "ratio.min must not exceed ratio.max",
        ),
        (
            spec(
                engine={"tensorParallelSize": 8},
                decode={"devices": {"gpu": {"count": 8}}},
                autoscaling={**BOTH_SCALED, "gpuBudget": 8},
            ),
            "autoscaling.gpuBudget is under the GPUs of minReplicas",
        ),
        (
            NODES | {"autoscaling": {"decode": {"maxReplicas": 4}, "gpuBudget": 1}},
            "autoscaling.gpuBudget is under the GPUs of minReplicas",
        ),
        (bounded((1, 2), (5, 9), {"min": "1:2"}), "raise prefill.maxReplicas or lower decode"),
        (bounded((4, 4), (1, 1), {"max": "1:1"}), "lower prefill.minReplicas or raise decode"),
        (spec(updates={"maxSurge": 0}), "raise one of them, or use strategy Recreate"),
        (
            spec(updates={"maxSurge": "0%", "maxUnavailable": "00"}),
            "raise one of them, or use strategy Recreate",
        ),
        (spec(autoscaling={**BOTH_SCALED, "ratio": {"min": "0:1"}}), "spec.autoscaling.ratio.min"),
        (
            spec(autoscaling={**BOTH_SCALED, "owner": "external"}),
            "an external owner has bounds of its own",
        ),
        (
            spec(prefill=None, engine={"tensorParallelSize": 4, "nodes": 3}),
            "lower or raise nodes to a divisor of tensorParallelSize",
        ),
        (
            spec(engine={"tensorParallelSize": 4, "nodes": 2}),
            "use engine.nodes over 1 without prefill only",
        ),
        (spec(model=None), "spec.model: Required value"),
        (spec(model={}), "name exactly one source of the model"),
        (
            spec(model={"image": {"path": "/a"}, "hostPath": {"path": "/b"}}),
            "name exactly one source of the model",
        ),
        (spec(model={"image": {"path": "a"}}), "spec.model.image.path"),
        (spec(model={"image": {"path": "/a/../b"}}), "absolute path without '..'"),
        (spec(kv={"blockTokens": 17}), 'Unsupported value: 17: supported values: "16", "32"'),
        (spec(kv={"budgetTokens": 3}), "should be greater than or equal to 64"),
        (spec(kv={"hostSize": "many"}), "write a size of at least 1Mi"),
        (spec(kv={"hostSize": "1Ki", "fastSize": "1Ki"}), "write a size of at least 1Mi"),
        (spec(kv={"hostSize": "1e99"}), "at most 1Pi"),
        (spec(kv={"hostSize": "1Gi", "fastSize": "2Gi"}), "raise hostSize"),
        (spec(kv={"prediction": {"ngramMin": 5}}), "lower ngramMin or raise ngramMax"),
        (spec(kv={"prediction": {"method": "draft"}}), "write heads, or use auto, ngram"),
        (heads("eagle", prediction={"method": "ema"}), "only the methods auto and draft use heads"),
        (heads("eagle", model=None), "write model exactly for the first two"),
        (heads("mtp"), "write model exactly for the first two"),
        (heads("eagle", prefill={}), "use kv.prediction.heads without prefill only"),
        (
            heads("eagle", served=OURS, model=on_the_hub("theirs")),
            "write the same tokenSecret in model.hub and in kv.prediction.heads.model.hub",
        ),
        (spec(decode={"replicas": 0}), "spec.decode.replicas"),
        (
            spec(decode={"resources": {"limits": {"memory": "1Gi"}}}),
            "the memory limit of decode must exceed kv.hostSize",
        ),
        (sharded(8, "32Gi"), "raise the limit over kv.hostSize times engine.tensorParallelSize"),
        (sharded(8, "16Gi", nodes=2), "divided by engine.nodes, or lower kv.hostSize"),
        (spec(prefill={"resources": {"requests": {"cpu": "fast"}}}), "write a quantity"),
        (spec(topology={"numa": {"policy": "maybe"}}), '"required", "preferred", "none"'),
        (spec(decode={"replica": 2}), 'unknown field "spec.decode.replica"'),
        (spec(topology={"numa": {"mode": "dra"}}), "name exactly what in decode.devices"),
        (spec(decode={"devices": {}}), "write at least one of gpu, nic and cpu"),
        (
            spec(decode={"devices": {"gpu": {"count": 8}, "cpu": {"count": 32}}}),
            "at most 32 devices: lower a count",
        ),
        (spec(decode={"devices": {"gpu": {"resourceName": "gpu"}}}), "gpu.resourceName"),
        (
            spec(topology=PINNED, decode={"resources": {"limits": {"cpu": 2}}}),
            "write memory and a whole number of cpu into decode.resources.limits",
        ),
        (
            spec(topology=PINNED, decode={"resources": {"limits": {"cpu": "1500m", **MEMORY}}}),
            "whole number of cpu into decode.resources.limits",
        ),
        (
            spec(topology=BY_KUBELET, decode={"devices": {"nic": {}}}),
            "write decode.devices.nic.resourceName, or use another mode",
        ),
        (
            spec(decode={"devices": {"nic": {}}, "numa": {"mode": "kubelet"}}),
            "write decode.devices.nic.resourceName, or use another mode",
        ),
        (
            spec(topology={"numa": {"mode": "kubelet", "align": "pcieRoot"}}),
            "the kubelet aligns decode pods to NUMA nodes only: use mode dra or auto",
        ),
        (
            spec(topology=BY_KUBELET, prefill={"numa": {"align": "pcieRoot"}}),
            "the kubelet aligns prefill pods to NUMA nodes only: use mode dra or auto",
        ),
        (
            spec(
                topology=PINNED,
                decode={"resources": {"limits": {"cpu": 2, **MEMORY}, "requests": {"cpu": 1}}},
            ),
            "equal requests or none",
        ),
    ],
    ids=lambda value: value[:30] if isinstance(value, str) else "",
)
def test_a_wrong_field_is_refused_with_what_to_do(
    world: World, given: dict[str, Any], told: str
) -> None:
    assert told in world.refused("wrong", given)


@pytest.mark.parametrize(
    ("name", "given", "told"),
    [
        ("x" * 41, spec(), "at most 40 characters"),
        ("x" * 32, NODES, "at most 31 characters for engines on several nodes"),
        ("9lives", spec(), "begins with a letter"),
    ],
    ids=("long", "long-for-groups", "digit"),
)
def test_a_name_that_no_object_can_have_is_refused(
    world: World, name: str, given: dict[str, Any], told: str
) -> None:
    assert told in world.refused(name, given)


def test_an_engine_on_several_nodes_has_a_gpu_for_each_rank(world: World) -> None:
    assert world.refused("x" * 31, NODES) == ""
    decode = {"devices": {"gpu": {"count": 2}}}
    told = world.refused("chat", NODES | {"decode": decode})
    assert "raise or lower decode.devices.gpu.count" in told


def test_defaults_are_stored_at_every_level(world: World) -> None:
    world.apply("plain", spec(decode=None))
    stored = world.get("odep", "plain")["spec"]
    assert stored["decode"]["replicas"] == 1
    assert stored["kv"]["prediction"] == {
        "method": "ngram",
        "draftTokens": 1,
        "ngramMax": 4,
        "ngramMin": 2,
    }
    assert stored["topology"]["numa"]["policy"] == "preferred"
    assert "podTemplate" not in stored["decode"]


def test_a_list_of_deployments_shows_what_matters(world: World) -> None:
    world.apply("plain", spec())
    header = world.kubectl("get", "odep").splitlines()[0]
    shown = "NAME MODEL READY REASON PREFILL DECODE MODE HIT AGE"
    assert " ".join(header.split()) == shown


def test_every_field_explains_itself(world: World) -> None:
    assert "Tokens in one block" in world.kubectl("explain", "odep.spec.kv.blockTokens")
