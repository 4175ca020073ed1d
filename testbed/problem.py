"""The one way in which the test bed refuses: a sentence for the person who ran it."""

from __future__ import annotations

OTHER_WAYS = (
    "Other ways in: set KUBECONFIG to a cluster that you have, install charts/oasiskv with Helm "
    "on it, or run the runtime beside plain vLLM with no Kubernetes (see README.md)."
)


class Problem(Exception):  # noqa: N818 - it is not an error of the program
    """What is wrong, where, and what to do, in words fit to be the last line a user reads."""
