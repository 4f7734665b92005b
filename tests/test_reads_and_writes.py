"""Services write, and selectors search: other modules only narrow, list and count what they are given."""

import ast
from collections.abc import Iterator
from pathlib import Path

from django.apps import apps
from django.conf import settings
from django.db.models import QuerySet

ROOT = Path(settings.BASE_DIR)
_PACKAGES = ("engine", "labeling", "llmpo_site")
# Models define the tables; migrations change them.
_TABLES = ("engine/migrations/", "engine/models/")
_WRITERS = ("engine/services/",)
# Accounts ask the tables of Django and of django-allauth, where somebody logs in.
_READERS = (*_WRITERS, "engine/selectors/", "labeling/accounts/")
_ALWAYS_WRITE = {
    "abulk_create",
    "acreate",
    "adelete",
    "asave",
    "aupdate",
    "bulk_create",
    "bulk_update",
    "create_superuser",
    "create_user",
    "get_or_create",
    "save",
    "select_for_update",
    "update_or_create",
}
_BY_KEYWORDS = {"create", "update"}
_MANAGERS = {"objects", "_base_manager", "_default_manager", "base_manager", "default_manager"}
_SEARCHES = {
    "aggregate",
    "aget",
    "alias",
    "annotate",
    "earliest",
    "exclude",
    "filter",
    "in_bulk",
    "latest",
    "raw",
}


def writes(tree: ast.AST) -> Iterator[ast.Call]:
    """The calls that change rows or lock them.

    A dict's ``update`` takes no keywords here, and a cache's ``delete`` takes a key.
    """
    for call, name in _methods(tree):
        keywords_alone = bool(call.keywords) and not call.args
        deletes = name == "delete" and not call.args
        if name in _ALWAYS_WRITE or (name in _BY_KEYWORDS and keywords_alone) or deletes:
            yield call


def reads(tree: ast.AST) -> Iterator[ast.expr]:
    """The managers of models that are asked, and the searches in rows that belong to a row."""
    # A method may have a manager's name; a manager is not called.
    allowed = {id(call.func) for call, _ in _methods(tree)}
    named = _named_queries()
    allowed |= {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Attribute) and n.attr in named}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in _MANAGERS and id(node) not in allowed:
            yield node
    related = _related()
    for call, name in _methods(tree):
        # A dict's `get` takes a key.
        searches = name in _SEARCHES or (name == "get" and not call.args)
        if searches and related & set(_chain(call.func.value)):
            yield call


def _methods(tree: ast.AST) -> Iterator[tuple[ast.Call, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            yield node, node.func.attr


def _chain(node: ast.expr) -> Iterator[str]:
    """The names of the attributes from the outermost on: of ``experiment.tasks.all()`` ``all``, ``tasks``."""
    while isinstance(node, ast.Call | ast.Attribute):
        if isinstance(node, ast.Call):
            node = node.func
        else:
            yield node.attr
            node = node.value


def _named_queries() -> set[str]:
    """The queries that our own models define, such as ``watched_by``."""
    classes = {
        getattr(model._default_manager, "_queryset_class", QuerySet)
        for model in apps.get_app_config("engine").get_models()
    }
    return {name for each in classes if each is not QuerySet for name in vars(each)}


def _related() -> set[str]:
    """The names under which rows have related rows, such as ``memberships``."""
    return {
        field.get_accessor_name() if field.auto_created else field.name
        for model in apps.get_app_config("engine").get_models()
        for field in model._meta.get_fields()
        if field.one_to_many or field.many_to_many
    }


def _strays(find, but: tuple[str, ...]) -> list[str]:
    found = []
    for package in _PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            place = path.relative_to(ROOT).as_posix()
            if place.startswith((*_TABLES, *but)):
                continue
            found += [
                f"{place}:{node.lineno}: {ast.unparse(node)}" for node in find(ast.parse(path.read_text()))
            ]
    return found


def test_only_services_write():
    assert _strays(writes, _WRITERS) == [], "Move them into engine/services."


def test_only_selectors_ask_tables():
    assert _strays(reads, _READERS) == [], "Move them into engine/selectors."
