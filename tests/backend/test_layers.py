"""Layers that import-linter's contracts cannot name: modules by the beginning of their name."""

from __future__ import annotations

import tomllib
from pathlib import Path

import grimp

PROJECT = Path(__file__).parents[2]
#: What may import views: pages and addresses.
ABOVE = ("urls", "views", "api")


def is_a(module: str, *layers: str) -> bool:
    """Whether the module, or a package that it is in, is of one of the layers (`views_compare` of `views`)."""
    return any(not {*layers}.isdisjoint(part.split("_")) for part in module.split("."))


def test_only_addresses_and_pages_import_views() -> None:
    linter = tomllib.loads((PROJECT / "pyproject.toml").read_text())["tool"]["importlinter"]
    graph = grimp.build_graph(*linter["root_packages"], cache_dir=None)
    views = [module for module in graph.modules if is_a(module, "views")]
    assert len(views) > 20
    wrong = {
        f"{importer} → {view}"
        for view in views
        for importer in graph.find_modules_that_directly_import(view)
        if not is_a(importer, *ABOVE)
    }
    assert not wrong
