"""Every figure of bench/README.md, one after the other: ``python3 bench/all.py [NAME ...]``.

Standard library only: sets up the environment and the model first, as the tests do. Names limit it
to those scripts. A script that fails does not keep the others from running.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from testbed import environment, model, packages

BENCH = Path(__file__).resolve().parent
SCRIPTS = (
    "kernel_costs", "summaries", "lookahead", "step", "operator_scale", "decode", "pd",
    "autoscaler", "drafts", "soak",
)  # fmt: skip
"""Those that write a result, the quick ones first."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(SCRIPTS)}")
    chosen = parser.parse_args().names or SCRIPTS
    if unknown := sorted(set(chosen) - set(SCRIPTS)):
        parser.error(f"no benchmark is named {unknown[0]!r}; there are {', '.join(SCRIPTS)}")
    packages.install(["python", "control-plane"])
    folder = environment.make()
    environment.link(folder)
    python = str(environment.python(folder))
    variables = {**os.environ, "OASISKV_MODEL": str(model.make())}
    failed = []
    for name in [*chosen, "readme"]:
        start = time.monotonic()
        print(f"== {name}", flush=True)
        done = subprocess.run([python, str(BENCH / f"{name}.py")], env=variables)
        print(f"== {name} took {time.monotonic() - start:.0f} s", flush=True)
        if done.returncode != 0:
            failed.append(name)
    if failed:
        print(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
