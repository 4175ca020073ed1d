"""What others have written into the content of an object, and how it becomes the operator's.

Who wrote what is in ``managedFields``; a set of fields is a tree there (FieldsV1 of
structured-merge-diff: ``f:`` a field, ``k:`` an item of a list, ``.`` the node itself). A
server-side apply takes away only what its manager owned and says no more. So the operator first
gives itself what others wrote, and the apply that follows leaves what the operator says.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from oasis_operator.api.definition import GROUP
from oasis_operator.api.role_crd import ROLE_KIND
from oasis_operator.desired.metadata import (
    FIELD_MANAGER,
    HASH_ANNOTATION,
    TEMPLATE_ANNOTATION,
    Manifest,
)
from oasis_operator.desired.pod_maker import (
    DEPLOYMENT,
    LEADER,
    LEADER_WORKER_SET,
    TEMPLATE_FIELD,
    WORKER,
)

Fields = dict[str, Any]
Path = tuple[str, ...]

_CONTENT = frozenset({"f:spec", "f:data", "f:rules", "f:subjects"})
"""A ServiceAccount has none of these: clusters add secrets of their own to it."""
_LABELLING = (("f:labels",), ("f:annotations",))
_OWN = f"f:{GROUP}/"
"""Labels and annotations by which the operator knows what it has made."""
_TEMPLATES = tuple(f"f:{field}" for field in TEMPLATE_FIELD.values())
_TEMPLATE_METADATA = (
    ("f:spec", f"f:{TEMPLATE_FIELD[DEPLOYMENT]}", "f:metadata"),
    *(
        ("f:spec", f"f:{TEMPLATE_FIELD[LEADER_WORKER_SET]}", f"f:{pod}", "f:metadata")
        for pod in (LEADER, WORKER)
    ),
)
_APPLY = "Apply"


def written_by_others(body: Mapping[str, Any]) -> bool:
    """Whether there is content that the operator must take to undo it.

    Labels and annotations of others stay, but for those of the operator's own group; also those of
    a pod template. So do the replicas of an OasisRole: they are there to be written by others. What
    goes through a subresource, such as the status, has rules of its own.
    """
    return any(_content(entry) for entry in _others(body))


def template_written_by_others(body: Mapping[str, Any]) -> bool:
    """Whether a template of pods is not what some operator has made of it."""
    written = [_content(entry).get("f:spec", {}) for entry in _others(body)]
    return any(template in fields for fields in written for template in _TEMPLATES)


def outdated_marks(body: Mapping[str, Any]) -> tuple[str, ...]:
    """Annotations that do not hold once that content is the operator's, though it stays until the
    next apply: what was applied, and which template some version of the operator made."""
    if template_written_by_others(body):
        return HASH_ANNOTATION, TEMPLATE_ANNOTATION
    return (HASH_ANNOTATION,)


def taken_over(body: Mapping[str, Any]) -> list[Manifest]:
    """The ``managedFields`` in which that content is the operator's."""
    others = {id(entry) for entry in _others(body)}
    entries = body["metadata"].get("managedFields") or []
    mine: Manifest = {
        "manager": FIELD_MANAGER,
        "operation": _APPLY,
        "apiVersion": body["apiVersion"],
        "fieldsType": "FieldsV1",
        "fieldsV1": {},
    }
    rest = []
    for entry in entries:
        if _is_apply_of_operator(entry):
            mine = {**entry, "fieldsV1": _union(mine["fieldsV1"], entry["fieldsV1"])}
        elif id(entry) in others:
            mine = {**mine, "fieldsV1": _union(mine["fieldsV1"], _content(entry))}
            left = _rest(entry)
            rest += [{**entry, "fieldsV1": left}] if left else []
        else:
            rest.append(entry)
    return [mine, *rest]


def _others(body: Mapping[str, Any]) -> list[Manifest]:
    if body["kind"] == ROLE_KIND:
        return []
    return [
        entry
        for entry in body["metadata"].get("managedFields") or []
        if entry.get("manager") != FIELD_MANAGER
        and not entry.get("subresource")
        and entry.get("apiVersion") == body["apiVersion"]
    ]


def _is_apply_of_operator(entry: Manifest) -> bool:
    return (
        entry.get("manager") == FIELD_MANAGER
        and entry.get("operation") == _APPLY
        and not entry.get("subresource")
    )


def _content(entry: Manifest) -> Fields:
    """Of the fields of an entry those that say what the object does."""
    return _tree(path for path in _leaves(entry.get("fieldsV1") or {}) if _is_content(path))


def _rest(entry: Manifest) -> Fields:
    return _tree(path for path in _leaves(entry.get("fieldsV1") or {}) if not _is_content(path))


def _is_content(path: Path) -> bool:
    if path[0] == "f:metadata":
        return path[1:2] in _LABELLING and path[2:3] != () and path[2].startswith(_OWN)
    return path[0] in _CONTENT and not any(
        path[: len(metadata)] == metadata for metadata in _TEMPLATE_METADATA
    )


def _leaves(fields: Fields, path: Path = ()) -> Iterator[Path]:
    for step, inner in fields.items():
        if inner:
            yield from _leaves(inner, (*path, step))
        else:
            yield (*path, step)


def _tree(paths: Iterable[Path]) -> Fields:
    root: Fields = {}
    for path in paths:
        node = root
        for step in path:
            node = node.setdefault(step, {})
    return root


def _union(one: Fields, other: Fields) -> Fields:
    return one | {key: _union(one.get(key, {}), value) for key, value in other.items()}
