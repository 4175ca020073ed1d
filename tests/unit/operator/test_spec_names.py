from __future__ import annotations

import pytest

from oasis_operator.desired.metadata import Component
from oasis_operator.desired.roles import role_plans
from oasis_operator.desired.spec_names import (
    SETTINGS,
    SPEC_FIELDS,
    in_spec_words,
    own_fields,
    spec_field,
)
from tests.unit.operator.make import deployment
from tests.unit.operator.test_field_names import exists

ROLES = (Component.PREFILL, Component.DECODE)


@pytest.mark.parametrize("setting", sorted(SETTINGS))
@pytest.mark.parametrize("role", ROLES)
def test_every_setting_of_the_engine_is_changed_by_a_field_that_there_is(
    setting: str, role: Component
) -> None:
    assert exists(spec_field(setting, role).removeprefix("spec"))


def test_every_setting_that_has_a_field_is_one() -> None:
    assert SPEC_FIELDS.keys() <= SETTINGS


def test_settings_are_told_as_fields_and_words_stay_words() -> None:
    said = "the model has role both: set links.force=true, or (numa.policy) to none."
    assert in_spec_words(said, Component.DECODE) == (
        "the model has role both: set spec.kv.links.force=true, or (spec.topology.numa.policy) to "
        "none."
    )


def test_what_a_role_says_itself_is_told_as_its_own_field() -> None:
    od = deployment(decode={"numa": {"policy": "required"}}, prefill={"numa": {"mode": "dra"}})
    prefill, decode = role_plans(od)
    said = "set numa.policy to preferred"
    told = in_spec_words(said, Component.DECODE, own_fields(decode))
    assert told == "set spec.decode.numa.policy to preferred"
    told = in_spec_words(said, Component.PREFILL, own_fields(prefill))
    assert told == "set spec.topology.numa.policy to preferred"


def test_a_setting_without_a_field_is_an_argument_of_the_roles_pods() -> None:
    assert in_spec_words("raise transfer.landing_bytes", Component.PREFILL) == (
        "raise transfer.landing_bytes (an argument --set in spec.prefill.podTemplate)"
    )


@pytest.mark.parametrize(
    "said",
    ["/models/tiers.fast_bytes/x", "--set=tiers.fast_bytes=1", "tiers.fast_bytes.old", "a.b_c"],
)
def test_what_only_looks_like_a_setting_stays(said: str) -> None:
    assert in_spec_words(said, Component.DECODE) == said


def test_an_argument_that_the_user_wrote_stays_as_it_is() -> None:
    said = "--set selection.budget_tokens: write one setting, for example tiers.block_tokens=32"
    assert in_spec_words(said, Component.DECODE) == said
