"""Programs that unit tests start import what the tests do, wherever the environment's editable
install points to, and while another checkout takes it over."""

from __future__ import annotations

import os
import sys

os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
