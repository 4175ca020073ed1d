"""PrefillReady and DecodeReady: whether a role's pods serve, and if not, what is missing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from oasis_operator.desired.metadata import Component
from oasis_operator.desired.model import ModelSource
from oasis_operator.desired.spec_names import NONE_OWN, in_spec_words
from oasis_operator.reconcile.conditions import DECODE_READY, PREFILL_READY, Draft, all_ready
from oasis_operator.reconcile.observed import DeploymentView
from oasis_operator.reconcile.pods import CONFIGURATION_REJECTED, PodView, Problem
from oasis_runtime.contract import HTTP_PORT

CONDITION_TYPE = {Component.PREFILL: PREFILL_READY, Component.DECODE: DECODE_READY}


def role_condition(
    component: Component,
    view: DeploymentView | None,
    pods: Iterable[PodView],
    warnings: Mapping[str, str],
    loaded: Sequence[ModelSource],
    since: datetime,
    own: Mapping[str, str] = NONE_OWN,
) -> Draft:
    """The condition of one role.

    Args:
        component: the role.
        view: its Deployment in the revision that the spec asks for.
        pods: pods of that Deployment.
        warnings: pod uid -> the kubelet's last complaint about starting it.
        loaded: the model and what else the engines load.
        since: pods that have not been ready from before then on are late.
        own: settings that the role's section of the spec says itself, and by which field.
    """
    kind = CONDITION_TYPE[component]
    if view is None:
        return Draft(kind, "False", "Creating", f"the {component} Deployment is being created")
    if view.complete and view.ready >= view.wanted:
        return Draft(kind, "True", "AllReady", all_ready(view.wanted, component))
    count = f"{view.ready} of {view.wanted} {component} pods are ready"
    if view.failure:
        return Draft(
            kind, "False", "PodsNotCreated", f"{count}; none can be created: {view.failure}", True
        )
    waiting = sorted((p for p in pods if not p.ready and not p.terminating), key=lambda p: p.name)
    for pod in waiting:
        if pod.problem is not None:
            told = _in_users_words(pod.problem, component, loaded, own)
            return Draft(
                kind, "False", pod.problem.reason, f"{count}; pod {pod.name}: {told}", True
            )
    for pod in waiting:
        if pod.uid in warnings:
            return Draft(
                kind,
                "False",
                "PodNotStarted",
                f"{count}; pod {pod.name} cannot start: {warnings[pod.uid]} ({_all_of(loaded)})",
                True,
            )
    late = [pod for pod in waiting if pod.ready_changed < since]
    if view.deadline_exceeded or late:
        silent = ", ".join(pod.name for pod in late or waiting) or "none was created"
        return Draft(
            kind,
            "False",
            "ProgressDeadlineExceeded",
            f"{count} after the progress deadline; pods that run but do not answer GET /health "
            f"on port {HTTP_PORT}: {silent}; see their logs, or raise "
            "spec.updates.progressDeadlineSeconds if the model takes longer to load",
            True,
        )
    return Draft(kind, "False", "Starting", f"{count}; the others are starting")


def _all_of(loaded: Sequence[ModelSource]) -> str:
    model, *heads = (source.told for source in loaded)
    return ", ".join((f"model: {model}", *(f"draft heads: {told}" for told in heads)))


def _in_users_words(
    problem: Problem, component: Component, loaded: Sequence[ModelSource], own: Mapping[str, str]
) -> str:
    """Inside the pod settings have other names, and the model another path, than the user wrote."""
    if problem.reason != CONFIGURATION_REJECTED:
        message = problem.message
    else:
        message = in_spec_words(problem.message, component, own)
    mounted = [(source.mount_path, source.told) for source in loaded if source.mount_path]
    named = [f"{path} is {told}" for path, told in mounted if path in message]
    if named:
        return f"{message} ({', '.join(named)})"
    model = loaded[0].told
    about = problem.reason == CONFIGURATION_REJECTED and re.search(r"\bmodel\b", problem.message)
    return f"{message} ({model})" if about and model not in message else message
