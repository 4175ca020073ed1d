"""spec -> the engine's configuration file."""

from __future__ import annotations

import json
from functools import lru_cache

import yaml
from pydantic import ValidationError

from oasis_operator.api.problems import problems_of
from oasis_operator.api.quantity import quantity_bytes
from oasis_operator.api.resource import InvalidSpecError, OasisDeployment
from oasis_operator.api.spec import Spec
from oasis_operator.desired.model import heads_source, model_source
from oasis_operator.desired.numa import numa_settings
from oasis_operator.desired.roles import RolePlan
from oasis_runtime.contract import (
    EngineConfig,
    LinkConfig,
    NodesConfig,
    NumaConfig,
    PredictionConfig,
    SelectionConfig,
    TierConfig,
)


def engine_config(od: OasisDeployment, role: RolePlan) -> EngineConfig:
    """Configuration of one role's engines.

    ``transfer.host``, ``nodes.rank`` and ``nodes.leader`` are not in it: every pod has its own,
    from its environment.

    Raises:
        InvalidSpecError: the engine would refuse it. Rules of the CRD see to it that none is
            stored; another version of the CRD may have let it in.
    """
    try:
        return _engine_config(od, role)
    except ValidationError as error:
        raise InvalidSpecError(f"the engine would refuse it: {problems_of(error)}") from error


def _engine_config(od: OasisDeployment, role: RolePlan) -> EngineConfig:
    spec, kv = od.spec, od.spec.kv
    source = model_source(spec)
    revision = ("--revision", source.revision) if source.revision else ()
    return EngineConfig(
        model=source.path,
        served_model_name=spec.served_model_name or od.name,
        role=role.engine,
        dtype=spec.engine.dtype,
        max_model_len=spec.engine.max_model_len,
        max_num_seqs=spec.engine.max_num_seqs,
        tensor_parallel_size=spec.engine.tensor_parallel_size,
        nodes=NodesConfig(count=spec.engine.nodes),
        tiers=TierConfig(
            block_tokens=kv.block_tokens,
            host_bytes=quantity_bytes(kv.host_size),
            fast_bytes=quantity_bytes(kv.fast_size),
        ),
        selection=SelectionConfig(
            mode=kv.mode,
            budget_tokens=kv.budget_tokens,
            sink_tokens=kv.sink_tokens,
            window_tokens=kv.window_tokens,
            budget_grows_from=kv.budget_grows_from or SelectionConfig().budget_grows_from,
        ),
        prediction=_prediction(spec),
        links=LinkConfig(force=kv.links.force),
        numa=NumaConfig(policy=numa_settings(od, role).policy),
        extra_args=(*revision, *(spec.engine.extra_args or ())),
    )


def _prediction(spec: Spec) -> PredictionConfig:
    prediction, heads = spec.kv.prediction, heads_source(spec)
    return PredictionConfig(
        method=prediction.method,
        draft_tokens=prediction.draft_tokens,
        draft_heads=prediction.heads.kind if prediction.heads else None,
        draft_model=heads.path if heads else None,
        draft_revision=heads.revision if heads else None,
        ngram_min=prediction.ngram_min,
        ngram_max=prediction.ngram_max,
    )


def engine_yaml(config: EngineConfig) -> str:
    """Only what differs from the defaults, so that a new field with a default changes no pod."""
    return _yaml(config.model_dump_json(exclude_defaults=True))


@lru_cache(maxsize=512)
def _yaml(text: str) -> str:
    """Of some JSON. The same few are asked for again and again, and nothing takes longer."""
    return yaml.safe_dump(json.loads(text), sort_keys=True)
