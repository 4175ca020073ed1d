from __future__ import annotations

from oasis_operator.cluster.errors import TooManyRequestsError
from oasis_operator.cluster.kinds import CHILDREN, OPTIONAL_CHILDREN, ResourceKind
from oasis_operator.cluster.refill import child_kinds


class Cluster:
    """Serves these groups and no others."""

    def __init__(self, *groups: str) -> None:
        self.groups = groups

    async def served(self, kind: ResourceKind) -> bool:
        return kind.group in self.groups


async def test_a_cluster_without_claims_has_the_other_kinds() -> None:
    assert await child_kinds(Cluster()) == CHILDREN


async def test_a_cluster_with_claims_and_our_roles_has_these_too() -> None:
    everything = {kind.group for kind in OPTIONAL_CHILDREN}
    assert await child_kinds(Cluster(*everything)) == (*CHILDREN, *OPTIONAL_CHILDREN)


async def test_a_server_that_refuses_some_of_the_questions_answers_all_in_the_end() -> None:
    class Busy(Cluster):
        asked = 0

        async def served(self, kind: ResourceKind) -> bool:
            self.asked += 1
            if self.asked % 2:
                raise TooManyRequestsError("try again later", 0.001)
            return await super().served(kind)

    assert await child_kinds(Busy()) == CHILDREN
