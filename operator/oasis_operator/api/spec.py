"""``spec`` of an OasisDeployment."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, model_validator

from oasis_operator.api.autoscaling import Autoscaling
from oasis_operator.api.base import (
    AbsolutePath,
    ApiModel,
    Image,
    LabelValue,
    ObjectName,
    PathInside,
    PodAmount,
    Quantity,
    ResourceName,
    TierSize,
    rule,
    rules,
)
from oasis_operator.api.spec_rules import (
    a_gpu_for_each_rank,
    aligned_by_who_can,
    can_be_pinned,
    claims_something,
    counts_its_adapters,
    least_gpus,
    memory_holds_the_host_tier,
    written,
)


class SecretKey(ApiModel):
    """One key of a Secret in the namespace of the OasisDeployment."""

    name: ObjectName
    """Name of the Secret."""
    key: Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[-._a-zA-Z0-9]+$")]
    """Key in its data."""


class ImageModel(ApiModel):
    """A model folder that is already inside the runtime image."""

    path: AbsolutePath
    """The folder."""


class HostPathModel(ApiModel):
    """A model folder on every node that a pod may run on, mounted read-only."""

    path: AbsolutePath
    """The folder."""


class PvcModel(ApiModel):
    """A model folder on a PersistentVolumeClaim, mounted read-only."""

    claim_name: ObjectName
    """Name of the claim, in the namespace of the OasisDeployment."""
    path: PathInside | None = None
    """Folder inside the volume; absent: the root of the volume."""


class ImageVolumeModel(ApiModel):
    """A model folder in an OCI image or artifact of its own, which the kubelet mounts read-only.

    Needs the feature ImageVolume of Kubernetes, and a container runtime that has it.
    """

    reference: Image
    """As in a container."""
    path: PathInside | None = None
    """Folder inside the image; absent: its root."""
    pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = None
    """Absent: Always for the tag latest, else IfNotPresent."""


class HubModel(ApiModel):
    """A model that each pod downloads from the Hugging Face hub into its own cache."""

    name: Annotated[str, Field(min_length=3, max_length=253, pattern=r"^[-\w.]+/[-\w.]+$")]
    """Repository, such as ``HuggingFaceTB/SmolLM2-135M-Instruct``."""
    revision: Annotated[str | None, Field(min_length=1, max_length=128)] = None
    """Branch, tag or commit; pin a commit so that all pods load the same weights."""
    token_secret: SecretKey | None = None
    """Access token for a gated or private repository."""


ONE_SOURCE = "name exactly one source of the model: image, hostPath, pvc, imageVolume or hub"


class Model(ApiModel):
    """Where the weights come from: exactly one of the sources."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "[has(self.image), has(self.hostPath), has(self.pvc), has(self.imageVolume), "
                "has(self.hub)].filter(x, x).size() == 1",
                ONE_SOURCE,
            )
        )
    )

    image: ImageModel | None = None
    host_path: HostPathModel | None = None
    pvc: PvcModel | None = None
    image_volume: ImageVolumeModel | None = None
    hub: HubModel | None = None

    @model_validator(mode="after")
    def _one_source(self) -> Model:
        """The rule once more, for what was stored under another version of the CRD."""
        named = [self.image, self.host_path, self.pvc, self.image_volume, self.hub]
        if sum(source is not None for source in named) != 1:
            raise ValueError(ONE_SOURCE)
        return self


class Engine(ApiModel):
    """Settings of vLLM itself."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "self.tensorParallelSize % self.nodes == 0",
                "each node has as many ranks as the others: lower or raise nodes to a divisor of "
                "tensorParallelSize",
                ".nodes",
            )
        )
    )

    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Number format of weights and KV; auto: that of the model."""
    max_model_len: Annotated[int | None, Field(ge=128, le=16777216)] = None
    """Longest context in tokens; absent: what the model was trained for."""
    max_num_seqs: Annotated[int, Field(ge=1, le=4096)] = 16
    """Requests that one engine runs at once."""
    tensor_parallel_size: Annotated[int, Field(ge=1, le=64)] = 1
    """Ranks that share each layer of one engine, one for each GPU."""
    nodes: Annotated[int, Field(ge=1, le=64)] = 1
    """Pods that an engine's ranks are divided among, where a node has too few GPUs. Over 1 they are
    groups of a LeaderWorkerSet, whose API the cluster must serve, and there are no prefill pods."""
    extra_args: Annotated[
        list[Annotated[str, Field(max_length=1024)]] | None,
        Field(min_length=1, max_length=64),
    ] = None
    """Passed on to vLLM's server as they are, after the operator's own arguments."""


class DraftHeads(ApiModel):
    """Layers that draft tokens for the model, trained for it."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "has(self.model) == (self.kind != 'mtp')",
                "heads of kind eagle and eagle3 have weights of their own, those of mtp are in the "
                "model: write model exactly for the first two",
                ".kind",
            ),
        )
    )

    kind: Literal["eagle", "eagle3", "mtp"]
    """How the heads are built."""
    model: Model | None = None
    """Where the weights of the heads are. Not for ``mtp``, whose heads are in the model."""


class Prediction(ApiModel):
    """Whose query selects the blocks of the next step."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "self.ngramMin <= self.ngramMax",
                "ngramMin must not exceed ngramMax: lower ngramMin or raise ngramMax",
                ".ngramMin",
            ),
            rule(
                "self.method != 'draft' || has(self.heads)",
                "method draft is that of draft heads: write heads, or use auto, ngram, ema or "
                "previous",
                ".method",
            ),
            rule(
                "!has(self.heads) || self.method in ['auto', 'draft']",
                "only the methods auto and draft use heads: set method to one of them or leave "
                "heads out",
                ".heads",
            ),
        )
    )

    method: Literal["auto", "draft", "ngram", "ema", "previous"] = "ngram"
    """``draft`` and ``ngram`` ride draft tokens as more rows of a step: those of ``heads``, or what
    followed the last tokens before. ``ema`` is the mean of the last queries, ``previous`` the last
    one. ``auto`` takes the first of draft, ngram and ema that pays for a request."""
    draft_tokens: Annotated[int, Field(ge=1, le=16)] = 1
    """Most draft tokens of a request in one step."""
    heads: DraftHeads | None = None
    """For the methods ``auto`` and ``draft``. Not with prefill pods, where the heads' keys and
    values of a prompt would stay."""
    ngram_min: Annotated[int, Field(ge=1, le=16)] = 2
    """Shortest match of a draft, in tokens."""
    ngram_max: Annotated[int, Field(ge=1, le=16)] = 4
    """Longest match of a draft, in tokens."""


class Links(ApiModel):
    """What to do about links that are too slow for the tiers."""

    force: bool = False
    """Use the tiers even where a link is under its gate."""


class Kv(ApiModel):
    """Tiers of the KV cache and how blocks are selected from them."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "!isQuantity(string(self.fastSize)) || !isQuantity(string(self.hostSize)) || "
                "quantity(string(self.fastSize)).compareTo(quantity(string(self.hostSize))) <= 0",
                "fastSize must not exceed hostSize, which holds all KV: raise hostSize",
                ".fastSize",
            )
        )
    )

    block_tokens: Literal[16, 32, 64, 128] = 32
    """Tokens in one block."""
    host_size: TierSize = "4Gi"
    """Host memory of one rank for the full KV of its requests. A pod has as many ranks as
    engine.tensorParallelSize, divided by engine.nodes."""
    fast_size: TierSize = "1Gi"
    """Fast memory (HBM on a GPU) of one rank for the pages the next token needs."""
    mode: Literal["auto", "sparse", "dense"] = "auto"
    """``auto`` is dense while sparsity would not pay, ``sparse`` always tries, ``dense`` never."""
    budget_tokens: Annotated[int, Field(ge=64, le=131072)] = 2048
    """Tokens in the selected blocks of one KV head, beside sinks and local window."""
    budget_grows_from: Annotated[int | None, Field(ge=128, le=16777216)] = None
    """Context in tokens from which on the budget grows with its square root; absent: 32768."""
    sink_tokens: Annotated[int, Field(ge=0, le=1024)] = 64
    """First tokens of the context that are always attended to."""
    window_tokens: Annotated[int, Field(ge=1, le=4096)] = 64
    """Last tokens of the context that are always attended to."""
    prediction: Prediction = Prediction()
    links: Links = Links()


class Resources(ApiModel):
    """Compute resources of the container, as in any pod."""

    requests: Annotated[dict[str, Quantity] | None, Field(max_length=16)] = None
    """What a node must have free."""
    limits: Annotated[dict[str, Quantity] | None, Field(max_length=16)] = None
    """What the container may use. Equal whole CPUs make a pod that the kubelet can pin."""


class Toleration(ApiModel):
    """As in any pod."""

    key: Annotated[str | None, Field(max_length=316)] = None
    """Key of the taint; absent with operator Exists: every taint."""
    operator: Literal["Exists", "Equal"] | None = None
    """Absent: Equal."""
    value: LabelValue | None = None
    """Value of the taint, for Equal."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """Absent: every effect."""
    toleration_seconds: Annotated[int | None, Field(ge=0, le=2**31 - 1)] = None
    """How long a taint with effect NoExecute is tolerated; absent: for ever."""


NumaPolicy = Literal["required", "preferred", "none"]
NumaMode = Literal["auto", "dra", "kubelet"]
NumaAlign = Literal["numaNode", "pcieRoot"]


class Numa(ApiModel):
    """Placement of an engine's memory, threads and devices inside its node."""

    policy: NumaPolicy = "preferred"
    """``required`` engines do not start unaligned, ``preferred`` ones report it."""
    mode: NumaMode = "auto"
    """Who aligns: ``dra`` claims devices with a common attribute, ``kubelet`` leaves it to the
    node's topology manager; ``auto`` takes dra where the cluster can, and the status says why."""
    align: NumaAlign = "numaNode"
    """What GPU and adapter have in common: the NUMA node, or the PCIe root as well, to which only
    dra aligns."""
    attribute: Annotated[
        str, Field(max_length=316, pattern=r"^[a-z0-9][-a-z0-9.]*/[A-Za-z_][A-Za-z0-9_]*$")
    ] = "resource.kubernetes.io/numaNode"
    """Attribute of ResourceSlices that holds a device's NUMA node; all drivers must publish it."""
    scheduler_name: Annotated[str | None, Field(min_length=1, max_length=63)] = None
    """Scheduler of the engine pods: in mode kubelet one that knows the nodes' free NUMA resources,
    in mode dra one that allocates claims. Absent: that of the cluster."""
    bind_memory: bool = False
    """Gives engines the capability SYS_NICE, without which a container may not bind its memory."""


class RoleNuma(ApiModel):
    """What differs from ``topology.numa`` for one role."""

    policy: NumaPolicy | None = None
    """Absent: that of topology.numa."""
    mode: NumaMode | None = None
    """Absent: that of topology.numa."""
    align: NumaAlign | None = None
    """Absent: that of topology.numa."""


class Topology(ApiModel):
    """Placement inside a node."""

    numa: Numa = Numa()


MAX_CLAIMED = 32
"""Devices in one claim: AllocationResultsMaxSize of resource.k8s.io/v1."""

DeviceCount = Annotated[int, Field(ge=1, le=MAX_CLAIMED)]
Selector = Annotated[str, Field(min_length=1, max_length=1024)]


class Gpu(ApiModel):
    """GPUs of each engine pod."""

    count: DeviceCount = 1
    """As many as engine.tensorParallelSize, divided by engine.nodes."""
    device_class_name: ObjectName = "gpu.nvidia.com"
    """DeviceClass to claim from in mode dra."""
    selector: Selector | None = None
    """CEL expression that a claimed device must fulfil."""
    resource_name: ResourceName = "nvidia.com/gpu"
    """Extended resource to ask for in mode kubelet."""


class Nic(ApiModel):
    """RDMA adapters of each engine pod."""

    count: DeviceCount = 1
    """Adapters of one pod."""
    device_class_name: ObjectName = "rdma"
    """DeviceClass to claim from in mode dra."""
    selector: Selector | None = None
    """CEL expression that a claimed device must fulfil."""
    resource_name: ResourceName | None = None
    """Extended resource to ask for in mode kubelet; its device plugin must report NUMA nodes."""


class Cpus(ApiModel):
    """CPUs of each engine pod, for itself alone."""

    count: DeviceCount = 1
    """Whole CPUs: devices of the claim in mode dra, CPU request and limit in mode kubelet."""
    device_class_name: ObjectName = "dra.cpu"
    """DeviceClass to claim from in mode dra; one device must be one CPU."""
    selector: Selector | None = None
    """CEL expression that a claimed device must fulfil."""


class Devices(ApiModel):
    """What an engine pod computes and sends with, kept together on one NUMA node."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "(has(self.gpu) ? self.gpu.count : 0) + (has(self.nic) ? self.nic.count : 0) + "
                f"(has(self.cpu) ? self.cpu.count : 0) <= {MAX_CLAIMED}",
                f"one claim holds at most {MAX_CLAIMED} devices: lower a count",
            ),
            rule(
                "has(self.gpu) || has(self.nic) || has(self.cpu)",
                "write at least one of gpu, nic and cpu",
            ),
        )
    )

    gpu: Gpu | None = None
    nic: Nic | None = None
    cpu: Cpus | None = None


NodeSelector = Annotated[dict[str, LabelValue], Field(max_length=32)]
Tolerations = Annotated[
    list[Toleration],
    Field(max_length=32, json_schema_extra={"x-kubernetes-list-type": "atomic"}),
]


class Role(ApiModel):
    """The pods of one role."""

    replicas: Annotated[int, Field(ge=1, le=512)] = 1
    """Engines, each in a pod, or in engine.nodes of them. Another number is no new revision."""
    resources: Resources | None = None
    devices: Devices | None = None
    numa: RoleNuma | None = None
    """What differs from ``topology.numa``."""
    node_selector: NodeSelector | None = None
    """Labels of the nodes that pods may run on."""
    tolerations: Tolerations | None = None
    """Taints of nodes that pods may run on all the same."""
    pod_template: dict[str, Any] | None = None
    """``metadata`` (labels, annotations) and ``spec`` of the pod, merged strategically over what
    the operator builds: lists by their usual keys, null deletes."""


class Router(ApiModel):
    """The vllm-router in front of the engines."""

    replicas: Annotated[int, Field(ge=1, le=64)] = 1
    """Pods. In P/D mode each has its own view of the engines' load."""
    image: Image | None = None
    """Absent: the operator's default."""
    policy: (
        Literal[
            "random",
            "round_robin",
            "cache_aware",
            "power_of_two",
            "consistent_hash",
            "sticky_least_loaded",
        ]
        | None
    ) = None
    """How a pod is chosen for a request; absent: cache_aware."""
    resources: Resources | None = None
    node_selector: NodeSelector | None = None
    """Labels of the nodes that routers may run on."""
    tolerations: Tolerations | None = None
    """Taints of nodes that routers may run on all the same."""


class Security(ApiModel):
    """Who may use the endpoint, and who may reach the pods."""

    api_key_secret: SecretKey | None = None
    """Key that clients must send as a bearer token. Absent: no key is asked for."""
    network_policy: bool = True
    """Lets only engines of the same OasisDeployment reach the ports of the KV transfer."""
    image_pull_secrets: Annotated[
        list[ObjectName] | None,
        Field(min_length=1, max_length=8, json_schema_extra={"x-kubernetes-list-type": "set"}),
    ] = None
    """Names of Secrets to pull the images of engines and routers with."""


class Updates(ApiModel):
    """How a new revision replaces the old one."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "self.strategy != 'Switch' || "
                "![self.maxSurge, self.maxUnavailable].all(a, string(a).matches('^0+%?$'))",
                "with maxSurge and maxUnavailable both 0 no pod is ever replaced: raise one of "
                "them, or use strategy Recreate",
                ".maxSurge",
            )
        )
    )

    strategy: Literal["Switch", "Recreate"] = "Switch"
    """``Switch`` starts the new pods beside the old ones and switches when they are ready, within
    ``maxSurge`` and ``maxUnavailable``; ``Recreate`` removes the old pods first, and serves
    nothing meanwhile."""
    max_surge: PodAmount = "100%"
    """Pods, or a share of the replicas, that each role may have beyond its replicas."""
    max_unavailable: PodAmount = 0
    """Pods, or a share of the replicas, that each role may lack while it is updated."""
    drain_seconds: Annotated[int, Field(ge=5, le=86400)] = 300
    """How long a pod that is to go may take to finish its requests; then they are cut."""
    progress_deadline_seconds: Annotated[int, Field(ge=30, le=86400)] = 900
    """How long pods may take to become ready before it counts as a failure."""


class Spec(ApiModel):
    """One model served with a sparse KV cache."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            *(
                make(role)
                for make in (
                    memory_holds_the_host_tier,
                    claims_something,
                    counts_its_adapters,
                    aligned_by_who_can,
                    can_be_pinned,
                    a_gpu_for_each_rank,
                )
                for role in ("prefill", "decode")
            ),
            rule(
                "self.engine.nodes == 1 || !has(self.prefill)",
                "the KV transfer finds all ranks of an engine at one address: use engine.nodes "
                "over 1 without prefill only",
                ".engine",
            ),
            rule(
                "!has(self.prefill) || !has(self.kv.prediction.heads)",
                "the draft heads' keys and values of a prompt would stay with its prefill pod: use "
                "kv.prediction.heads without prefill only",
                ".kv",
            ),
            rule(
                f"!({written('self.model', 'hub', 'tokenSecret')}) || "
                f"!({written('self.kv.prediction', 'heads', 'model', 'hub', 'tokenSecret')}) || "
                + " && ".join(
                    # Of two objects at different places CEL knows no equality.
                    f"self.model.hub.tokenSecret.{field} == "
                    f"self.kv.prediction.heads.model.hub.tokenSecret.{field}"
                    for field in ("name", "key")
                ),
                "an engine has one token for the hub: write the same tokenSecret in model.hub "
                "and in kv.prediction.heads.model.hub, of a token that may read both",
                ".kv",
            ),
            rule(
                "!has(self.autoscaling) || !has(self.autoscaling.gpuBudget) || "
                f"!has(self.autoscaling.decode) || {least_gpus('decode')} + "
                "(has(self.prefill) && has(self.autoscaling.prefill) ? "
                f"{least_gpus('prefill')} : 0) <= self.autoscaling.gpuBudget",
                "autoscaling.gpuBudget is under the GPUs of minReplicas, each pod with "
                "devices.gpu.count or 1: raise it, or lower minReplicas",
                ".autoscaling",
            ),
            rule(
                "!has(self.autoscaling) || self.autoscaling.owner == 'external' || "
                "has(self.autoscaling.prefill) == has(self.prefill)",
                "scale the roles that there are: write autoscaling.prefill exactly if there is "
                "spec.prefill",
                ".autoscaling",
            ),
        )
    )

    model: Model
    served_model_name: Annotated[str | None, Field(min_length=1, max_length=253)] = None
    """Name in the OpenAI API; absent: the name of the OasisDeployment."""
    image: Image | None = None
    """Runtime image of the engines; absent: the operator's default."""
    engine: Engine = Engine()
    kv: Kv = Kv()
    prefill: Role | None = None
    """Pods that only prefill. Absent: the decode pods serve requests from prompt to end."""
    decode: Role = Role()
    topology: Topology = Topology()
    router: Router = Router()
    security: Security = Security()
    updates: Updates = Updates()
    autoscaling: Autoscaling | None = None
    """Absent: as many pods as ``replicas`` says."""
