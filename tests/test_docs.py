"""The documentation is true: every setting is described, every link leads somewhere."""

import re
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from service import settings
from trainer.autoencoder import Architecture, AutoEncoder
from trainer.config import RECIPES, Recipe, make_recipe, read_recipe
from trainer.graphs import model_graphs
from trainer.kernels import KERNELS

ROOT = Path(__file__).parent.parent
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
LINK = re.compile(r"\[[^\]]*\]\(([^)#]+)[^)]*\)")


def settings_of(cls: type[Any], prefix: str = "") -> set[str]:
    names: set[str] = set()
    hints = get_type_hints(cls)
    for f in fields(cls):
        kind = hints[f.name]
        if is_dataclass(kind) and isinstance(kind, type):
            names |= settings_of(kind, f"{f.name}.")
        else:
            names.add(prefix + f.name)
    return names


def test_every_setting_of_a_recipe_is_documented_and_nothing_else() -> None:
    table = (ROOT / "docs/training.md").read_text(encoding="utf-8").split("## Recipes")[1]
    documented = set(re.findall(r"^\| `([a-z_.]+)` \|", table, re.M))
    assert documented == settings_of(Recipe)


def test_every_setting_of_the_service_is_documented_as_it_is() -> None:
    assert settings.make_table() in (ROOT / "docs/service.md").read_text(encoding="utf-8")


def test_every_graph_is_documented() -> None:
    text = (ROOT / "docs/artefact.md").read_text(encoding="utf-8")
    for name in model_graphs(AutoEncoder(Architecture(2, (2,)))):
        assert f"| `{name}` |" in text


def test_every_kernel_is_in_the_readme() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for name in KERNELS:
        assert f"| `{name}` |" in text


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_local_link_leads_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        if not target.startswith(("http://", "https://")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.toml")), ids=lambda p: p.stem)
def test_every_shipped_recipe_is_valid_and_carries_its_file_name(path: Path) -> None:
    assert make_recipe(read_recipe(path)).name == path.stem
