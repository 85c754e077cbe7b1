"""A public name without a user stops the gate."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from name_users.__main__ import main, users
from name_users.exported_names import PublicName

if TYPE_CHECKING:
    from pathlib import Path

PROJECT = """[project]
name = "{name}"

[tool.public-names]
modules = [{modules}]
"""


def write(root: Path, path: str, text: str) -> None:
    """Write a file into a checkout."""
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a checkout of two packages, of which the first exports `Graph` and `kinds.Kind`."""
    for name, modules in (("first-one", '"first_one.kinds"'), ("second", "")):
        project = PROJECT.format(name=name, modules=modules)
        write(tmp_path, f"packages/{name}/pyproject.toml", project)
    exported = '__all__ = ["Graph", "__version__"]\n'
    source = "from first_one.graph import Graph\n"
    write(tmp_path, "packages/first-one/src/first_one/__init__.py", source + exported)
    write(tmp_path, "packages/first-one/src/first_one/graph.py", "class Graph: ...\n")
    kinds = "class Kind: ...\n\n__all__ = ['Kind']\n"
    write(tmp_path, "packages/first-one/src/first_one/kinds.py", kinds)
    write(tmp_path, "packages/second/src/second/__init__.py", "__all__: list[str] = []\n")
    return tmp_path


def used(root: Path) -> dict[str, list[str]]:
    """Return the users of each name of the first package."""
    return {each.name: files for each, files in users(root).items() if each.package == "first-one"}


def test_names_of_a_package_and_of_its_public_modules_are_public(root: Path) -> None:
    assert set(users(root)) == {PublicName("first-one", "Graph"), PublicName("first-one", "Kind")}


def test_a_module_without_a_list_promises_what_it_defines(root: Path) -> None:
    source = (
        "from typing import Any\nclass Kind: ...\nclass _Own: ...\ndef pytest_configure(): ...\n"
    )
    write(root, "packages/first-one/src/first_one/kinds.py", source)

    assert set(used(root)) == {"Graph", "Kind"}


def test_tests_and_sources_of_the_package_are_no_users(root: Path) -> None:
    source = "from first_one import Graph\nfrom first_one.kinds import Kind\n"
    write(root, "packages/first-one/tests/test_graph.py", source)
    write(root, "packages/first-one/src/first_one/more.py", source)

    assert used(root) == {"Graph": [], "Kind": []}


@pytest.mark.parametrize(
    "source",
    [
        "from first_one import Graph as G\nfrom first_one.kinds import Kind\n",
        "import first_one\nimport first_one.kinds\nfirst_one.Graph(first_one.kinds.Kind)\n",
        "import first_one as f\nfrom first_one import kinds\nf.Graph(kinds.Kind)\n",
        "def call():\n    from first_one import Graph\n    from first_one.kinds import Kind\n",
        'NAMES = ("first_one:Graph", "first_one.kinds.Kind")\n',
    ],
)
@pytest.mark.parametrize(
    "folder", ["packages/second/src/second", "packages/second/tests", "engines"]
)
def test_code_of_other_packages_is_a_user(root: Path, folder: str, source: str) -> None:
    write(root, f"{folder}/engine.py", source)

    assert used(root) == {"Graph": [f"{folder}/engine.py"], "Kind": [f"{folder}/engine.py"]}


def test_other_names_with_the_same_spelling_are_no_users(root: Path) -> None:
    source = "import first_one\nfrom second import Graph\nother = Graph().Kind\n"
    write(root, "benchmarks/bench.py", source)

    assert used(root) == {"Graph": [], "Kind": []}


@pytest.mark.parametrize(
    "page",
    [
        "Use first-one:\n\n```python\nfrom first_one import Graph, kinds\n\nkinds.Kind()\n```\n",
        "`first_one` has `Graph(size)` and `Kind`.\n",
    ],
)
def test_code_on_a_page_is_a_user(root: Path, page: str) -> None:
    write(root, "docs/page.md", page)

    assert used(root) == {"Graph": ["docs/page.md"], "Kind": ["docs/page.md"]}


@pytest.mark.parametrize(
    ("path", "page"),
    [
        ("docs/page.md", "first-one makes a Graph of any Kind.\n"),
        ("docs/page.md", "`second` has `Graph` and `Kind`.\n"),
        ("packages/first-one/CHANGELOG.md", "`first_one` has `Graph` and `Kind`.\n"),
        ("packages/first-one/changes/a.added.md", "`first_one` has `Graph` and `Kind`.\n"),
    ],
)
def test_words_other_packages_and_changelogs_are_no_users(root: Path, path: str, page: str) -> None:
    write(root, path, page)

    assert used(root) == {"Graph": [], "Kind": []}


@pytest.mark.parametrize(
    "graph",
    [
        "class Graph:\n    def kind(self) -> Kind | None: ...\n",
        "class Graph:\n    kind: Kind\n",
        "class _Base:\n    def of(self, kind: Kind) -> None: ...\n\nclass Graph(_Base): ...\n",
        "def Graph(*kinds: Kind) -> None: ...\n",
        "Graph = Kind | None\n",
    ],
)
def test_types_in_the_signature_of_a_used_name_are_used(root: Path, graph: str) -> None:
    write(root, "packages/first-one/src/first_one/graph.py", graph)
    assert used(root) == {"Graph": [], "Kind": []}

    write(root, "examples/engine.py", "from first_one import Graph\n")
    assert used(root) == {"Graph": ["examples/engine.py"], "Kind": ["the signature of `Graph`"]}


def test_private_members_use_nothing(root: Path) -> None:
    graph = "class Graph:\n    def _kind(self) -> Kind: ...\n"
    write(root, "packages/first-one/src/first_one/graph.py", graph)
    write(root, "examples/engine.py", "from first_one import Graph\n")

    assert used(root)["Kind"] == []


def test_a_name_without_a_user_stops_the_gate(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(root, "examples/engine.py", "from first_one import Graph\n")
    assert main(["--root", str(root)]) == 1
    said = capsys.readouterr()
    assert "first-one: nothing outside the package uses Kind" in said.err
    assert "Graph" not in said.err
    assert said.out == "name_users: 2 public names, 1 without a user\n"

    write(
        root, "examples/engine.py", "from first_one import Graph\nfrom first_one.kinds import Kind"
    )
    assert main(["--root", str(root)]) == 0


def test_table_shows_each_name_with_its_users(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(root, "examples/engine.py", "from first_one import Graph\n")

    main(["--root", str(root), "--table", "first-one"])

    lines = capsys.readouterr().out.splitlines()
    assert "| first-one | `Graph` | 1 | examples/engine.py |" in lines
    assert "| first-one | `Kind` | 0 |  |" in lines


def test_a_listed_module_that_is_missing_is_named(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    project = PROJECT.format(name="second", modules='"second.gone"')
    write(root, "packages/second/pyproject.toml", project)

    assert main(["--root", str(root)]) == 2
    assert "second: pyproject.toml lists second.gone, which has no file" in capsys.readouterr().err
