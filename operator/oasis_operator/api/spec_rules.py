"""Rules of the CRD about fields in different sections of ``spec``, in CEL: ``self`` is the spec.

Each function makes the rule of one role, or a part of a rule.
"""

from __future__ import annotations

from oasis_operator.api.base import rule


def memory_holds_the_host_tier(role: str) -> dict[str, str]:
    """Floating-point numbers, for quantities know no product: exact up to 8Pi."""
    limits = f"self.{role}.resources.limits"
    return rule(
        f"!has(self.{role}) || !has(self.{role}.resources) || !has({limits}) || "
        f"!('memory' in {limits}) || !isQuantity(string({limits}['memory'])) || "
        f"!isQuantity(string(self.kv.hostSize)) || quantity(string({limits}['memory']))"
        ".asApproximateFloat() > quantity(string(self.kv.hostSize)).asApproximateFloat() * "
        "double(self.engine.tensorParallelSize / self.engine.nodes)",
        f"the memory limit of {role} must exceed kv.hostSize, which each rank of a pod allocates "
        "at start: raise the limit over kv.hostSize times engine.tensorParallelSize, divided by "
        "engine.nodes, or lower kv.hostSize",
        f".{role}.resources",
    )


def _numa_of(role: str, field: str) -> str:
    """CEL: what holds for a role, its own or the common setting."""
    own = f"self.{role}.numa"
    return f"(has({own}) && has({own}.{field}) ? {own}.{field} : self.topology.numa.{field})"


def claims_something(role: str) -> dict[str, str]:
    return rule(
        f"!has(self.{role}) || has(self.{role}.devices) || {_numa_of(role, 'mode')} != 'dra'",
        f"mode dra needs something to claim: name exactly what in {role}.devices, or use another "
        "mode",
        f".{role}",
    )


def counts_its_adapters(role: str) -> dict[str, str]:
    nic = f"self.{role}.devices.nic"
    return rule(
        f"!has(self.{role}) || !has(self.{role}.devices) || !has({nic}) || "
        f"has({nic}.resourceName) || {_numa_of(role, 'mode')} != 'kubelet'",
        f"in mode kubelet an adapter is an extended resource: write {role}.devices.nic."
        "resourceName, or use another mode",
        f".{role}.devices",
    )


def aligned_by_who_can(role: str) -> dict[str, str]:
    return rule(
        f"!has(self.{role}) || {_numa_of(role, 'align')} != 'pcieRoot' || "
        f"{_numa_of(role, 'mode')} != 'kubelet'",
        f"the kubelet aligns {role} pods to NUMA nodes only: use mode dra or auto, or align "
        "numaNode",
        f".{role}",
    )


def can_be_pinned(role: str) -> dict[str, str]:
    """Where the kubelet must align, what it does not align is refused at once."""
    resources, devices = f"self.{role}.resources", f"self.{role}.devices"
    limits, requests = f"{resources}.limits", f"{resources}.requests"

    def same(name: str) -> str:
        return (
            f"(!has({requests}) || !('{name}' in {requests}) || "
            f"({name!r} in {limits} && isQuantity(string({requests}['{name}'])) && "
            f"isQuantity(string({limits}['{name}'])) && quantity(string({requests}['{name}']))"
            f".compareTo(quantity(string({limits}['{name}']))) == 0))"
        )

    whole = (
        f"('cpu' in {limits} ? isQuantity(string({limits}['cpu'])) && "
        f"quantity(string({limits}['cpu'])).isInteger() : has({devices}) && has({devices}.cpu))"
    )
    return rule(
        f"!has(self.{role}) || {_numa_of(role, 'mode')} != 'kubelet' || "
        f"{_numa_of(role, 'policy')} != 'required' || (has({resources}) && has({limits}) && "
        f"'memory' in {limits} && {whole} && {same('cpu')} && {same('memory')})",
        f"the kubelet aligns Guaranteed pods only: write memory and a whole number of cpu into "
        f"{role}.resources.limits, and equal requests or none",
        f".{role}.resources",
    )


def a_gpu_for_each_rank(role: str) -> dict[str, str]:
    devices = f"self.{role}.devices"
    return rule(
        f"!has(self.{role}) || !has({devices}) || !has({devices}.gpu) || "
        f"{devices}.gpu.count * self.engine.nodes == self.engine.tensorParallelSize",
        f"raise or lower {role}.devices.gpu.count to engine.tensorParallelSize, divided by "
        "engine.nodes: each rank has one GPU",
        f".{role}.devices",
    )


def least_gpus(role: str) -> str:
    """CEL: GPUs of the least pods of a role, as a budget counts them."""
    gpu = f"self.{role}.devices.gpu"
    return (
        f"self.autoscaling.{role}.minReplicas * self.engine.nodes * "
        f"(has(self.{role}.devices) && has({gpu}) ? {gpu}.count : 1)"
    )


def written(start: str, *optional: str) -> str:
    """CEL: every one of the optional fields, each inside the last, is there."""
    inside = [".".join((start, *optional[: depth + 1])) for depth in range(len(optional))]
    return " && ".join(f"has({path})" for path in inside)
