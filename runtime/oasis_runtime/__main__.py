"""``python -m oasis_runtime``."""

from __future__ import annotations

import sys

from oasis_runtime.serve.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
