"""From what the load needs now to a step that can be taken back no sooner than it was made."""

from __future__ import annotations

import math

from oasis_operator.autoscaling.history import RoleHistory
from oasis_operator.autoscaling.policy import Behaviour


def tolerated(pods: float, replicas: int, tolerance: float) -> int:
    """Whole pods for a demand; the pods there are where that is near enough.

    Pods are taken away only if the demand leaves the others some room, so that a demand at the
    edge between two numbers does not go back and forth.
    """
    if pods > replicas * (1 + tolerance):
        return math.ceil(pods)
    return min(replicas, math.ceil(pods * (1 + tolerance)))


def stabilised(
    needed: int, replicas: int, history: RoleHistory, now: float, behaviour: Behaviour
) -> int:
    """``needed``, but not more than was needed all through the window for more, and not less than
    was needed at some time in the window for less (as the HorizontalPodAutoscaler does it)."""
    ups = [s.needed for s in history.since(now - behaviour.up_seconds)]
    downs = [s.needed for s in history.since(now - behaviour.down_seconds)]
    # After a start nothing is known of the time before: the pods there are were wanted then.
    known_seconds = now - history.samples[0].at if history.samples else 0.0
    if known_seconds < behaviour.up_seconds:
        ups.append(replicas)
    if known_seconds < behaviour.down_seconds:
        downs.append(replicas)
    most, least = min((needed, *ups)), max((needed, *downs))
    return max(most, min(least, replicas))


def stepped(
    wanted: int, replicas: int, history: RoleHistory, now: float, behaviour: Behaviour
) -> int:
    """``wanted``, but no further from the pods of the last period than one step."""
    recent = [s.replicas for s in history.since(now - behaviour.step_seconds)]
    fewest, most = min((replicas, *recent)), max((replicas, *recent))
    highest = max(2 * fewest, fewest + behaviour.step_pods)
    lowest = most - max(1, most // 4)
    return max(min(wanted, max(highest, replicas)), min(lowest, replicas))
