"""``python -m oasis_runtime``."""

from __future__ import annotations

import sys

from oasis_runtime.serve import termination

if __name__ == "__main__":
    # Before the imports, which take their time, and in a container nothing else would end them.
    termination.end_at_once()
    from oasis_runtime.serve.command import main

    sys.exit(main(sys.argv[1:]))
