"""What an engine says about engine.yaml, in the words of the spec that engine.yaml is made of."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from pydantic import BaseModel

from oasis_operator.desired.metadata import Component
from oasis_operator.desired.roles import RolePlan
from oasis_runtime.contract import EngineConfig

SPEC_FIELDS = {
    "model": "spec.model",
    "served_model_name": "spec.servedModelName",
    "role": "spec.prefill",
    "dtype": "spec.engine.dtype",
    "max_model_len": "spec.engine.maxModelLen",
    "max_num_seqs": "spec.engine.maxNumSeqs",
    "tensor_parallel_size": "spec.engine.tensorParallelSize",
    "nodes.count": "spec.engine.nodes",
    "extra_args": "spec.engine.extraArgs",
    "tiers.block_tokens": "spec.kv.blockTokens",
    "tiers.host_bytes": "spec.kv.hostSize",
    "tiers.fast_bytes": "spec.kv.fastSize",
    "selection.mode": "spec.kv.mode",
    "selection.budget_tokens": "spec.kv.budgetTokens",
    "selection.sink_tokens": "spec.kv.sinkTokens",
    "selection.window_tokens": "spec.kv.windowTokens",
    "selection.budget_grows_from": "spec.kv.budgetGrowsFrom",
    "prediction.method": "spec.kv.prediction.method",
    "prediction.draft_tokens": "spec.kv.prediction.draftTokens",
    "prediction.draft_heads": "spec.kv.prediction.heads.kind",
    "prediction.draft_model": "spec.kv.prediction.heads.model",
    "prediction.draft_revision": "spec.kv.prediction.heads.model.hub.revision",
    "prediction.ngram_min": "spec.kv.prediction.ngramMin",
    "prediction.ngram_max": "spec.kv.prediction.ngramMax",
    "links.force": "spec.kv.links.force",
    "numa.policy": "spec.topology.numa.policy",
}
"""Setting of engine.yaml -> the field that it follows from. The others have the engine's default,
or are arguments that the user added to the pods."""
PASSED_ON = {
    Component.PREFILL: "spec.prefill.podTemplate",
    Component.DECODE: "spec.decode.podTemplate",
}
"""Where arguments of an engine's container are added."""
OWN_POLICY = {
    Component.PREFILL: "spec.prefill.numa.policy",
    Component.DECODE: "spec.decode.numa.policy",
}
NONE_OWN: Mapping[str, str] = {}


def _settings(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from _settings(kind, f"{prefix}{name}.")
        else:
            yield prefix + name


SETTINGS = frozenset(_settings(EngineConfig))
"""Names of all settings of engine.yaml."""
# An argument that the user wrote is told as it was written.
_WORD = re.compile(
    r"(?<!--set )(?<!for example )(?<![\w./=-])"
    r"[a-z]+(?:_[a-z]+)*(?:\.[a-z]+(?:_[a-z]+)*)?(?![\w/]|\.\w)"
)


def own_fields(role: RolePlan) -> dict[str, str]:
    """Those of the settings that follow from another field, as the role says them itself."""
    if role.spec.numa is None or role.spec.numa.policy is None:
        return {}
    return {"numa.policy": OWN_POLICY[role.component]}


def spec_field(setting: str, component: Component, own: Mapping[str, str] = NONE_OWN) -> str:
    """The field of the spec by which a setting of a role's engines is changed.

    Args:
        setting: its name in engine.yaml.
        component: the role.
        own: what the role says itself.
    """
    return own.get(setting) or SPEC_FIELDS.get(setting) or PASSED_ON[component]


def in_spec_words(sentence: str, component: Component, own: Mapping[str, str] = NONE_OWN) -> str:
    """What an engine of the role said, with fields of the spec for the settings that it names.

    A name that is a plain word, such as ``model`` or ``role``, may be meant as a word, and stays.
    """

    def told(found: re.Match[str]) -> str:
        name = found.group()
        if name not in SETTINGS or not ("." in name or "_" in name):
            return name
        field = spec_field(name, component, own)
        return field if name in SPEC_FIELDS else f"{name} (an argument --set in {field})"

    return _WORD.sub(told, sentence)
