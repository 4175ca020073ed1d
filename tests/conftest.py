"""Settings of the whole suite."""

from __future__ import annotations

from hypothesis import settings

# A busy machine is no failure; what must be fast is measured in bench/.
settings.register_profile("suite", deadline=None)
settings.load_profile("suite")
