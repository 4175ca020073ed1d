"""Environment of a command that is run on a bed."""

from __future__ import annotations

import os
from pathlib import Path

from testbed import environment, programs


def with_tools(kubeconfig: Path) -> dict[str, str]:
    """The caller's environment with KUBECONFIG, and with programs and Python first on PATH.

    ``exec -- helm list`` and ``exec -- python -m pytest`` then use what the test bed has made.
    """
    made = environment.made()
    folders = programs.search_path() + ([str(made / "bin")] if made is not None else [])
    path = os.pathsep.join([*folders, os.environ.get("PATH", "")])
    return {**os.environ, "KUBECONFIG": str(kubeconfig), "PATH": path}
