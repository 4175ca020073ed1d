"""Entry point: ``python3 -m testbed``."""

import signal
import sys

OLDEST = (3, 11)

if __name__ == "__main__":
    if sys.version_info < OLDEST:
        sys.exit(
            f"testbed: Python 3.11 or newer is needed and {sys.executable} is "
            f"{sys.version.split()[0]}; run it with another, as in `make PYTHON=python3.11 demo`"
        )
    from testbed.cli import main

    # As by ctrl-C: programs that run are ended, and so is a bed that is half up.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
