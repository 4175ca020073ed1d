"""How many OpenMP threads the CPU worker gets, and whether they are pinned.

vLLM's own choice counts the CPUs that the process may run on. In a pod with a CPU quota those
are all CPUs of the node, so it would start far more spinning threads than it may run (measured:
two threads on two shared cores take 174 ms for a step that one thread does in 42 ms), and it
pins them, so that two pods on a node share one core and leave the other idle.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

BIND_VARIABLE = "VLLM_CPU_OMP_THREADS_BIND"
UNPINNED = "nobind"
THREADS_VARIABLE = "OMP_NUM_THREADS"

NUMBA_LAYER_VARIABLE = "NUMBA_THREADING_LAYER"
"""vLLM drafts n-grams with numba, whose OpenMP layer sets the number of OpenMP threads of the
whole worker to the number of CPUs (measured: ``torch.get_num_threads()`` goes from 1 to 2 with the
first draft). Its own work queue leaves OpenMP alone."""

_PINNING_PAYS_ABOVE = 2
"""vLLM keeps one CPU for itself and one for the transfer; with no more there is none to pin."""


@dataclass(frozen=True)
class CpuShare:
    """CPUs that the process may run on, and how much CPU time it may take."""

    allowed: int
    quota: float | None
    """In CPUs; None without a limit."""


def read_quota(cgroup: Path = Path("/sys/fs/cgroup")) -> float | None:
    """The container's CPU limit in CPUs, from cgroup v2 or v1."""
    try:
        limit, period = (cgroup / "cpu.max").read_text().split()
    except (OSError, ValueError):
        try:
            limit = (cgroup / "cpu/cpu.cfs_quota_us").read_text().strip()
            period = (cgroup / "cpu/cpu.cfs_period_us").read_text().strip()
        except OSError:
            return None
    if limit in ("max", "-1"):
        return None
    return int(limit) / int(period)


def thread_variables(share: CpuShare, environment: Mapping[str, str]) -> dict[str, str]:
    """Variables to set for the worker, besides those that the user has set.

    With a whole set of CPUs of its own (no quota under it) vLLM pins one thread per core and
    spares two. Otherwise: no pinning, and one CPU less than the quota, since the scheduler and
    the API server take their time from the same quota.
    """
    variables = {}
    if not environment.get(NUMBA_LAYER_VARIABLE):
        variables[NUMBA_LAYER_VARIABLE] = "workqueue"
    if environment.get(BIND_VARIABLE):
        return variables
    limited = share.quota is not None and share.quota < share.allowed
    if share.allowed > _PINNING_PAYS_ABOVE and not limited:
        return variables
    cpus = min(float(share.allowed), share.quota or float(share.allowed))
    threads = environment.get(THREADS_VARIABLE) or str(max(1, int(cpus) - 1))
    return {**variables, BIND_VARIABLE: UNPINNED, THREADS_VARIABLE: threads}
