"""Sources that are compiled together."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, Final

import pytest

from cann_sim.building.native_library import NATIVE, native_libraries
from cann_sim.building.translation_units import translation_units
from cann_sim.inventory.installation import find_installation

if TYPE_CHECKING:
    from pathlib import Path

KILOBYTE: Final = 1000

UNNAMED: Final = re.compile(r"^namespace \{\n(.*?)^\}  // namespace$", re.MULTILINE | re.DOTALL)
# A definition or declaration of a function at the beginning of a line: its type, name and "(".
FUNCTION: Final = re.compile(
    r"^(?!using|return|namespace|template|static_assert|#)"
    r"(?:const |constexpr |inline |static |\[\[\w+\]\] )*[\w:]+(?:<[^;()]*>)?[&*]* (\w+)\(",
    re.MULTILINE,
)


def unnamed_functions(text: str) -> set[str]:
    """Return the names of the functions in the unnamed namespaces of a C++ source."""
    return {name for body in UNNAMED.findall(text) for name in FUNCTION.findall(body)}


@pytest.fixture(name="folders")
def _folders(tmp_path: Path) -> list[Path]:
    """Return sources in two folders: five of 30 kB, one of 1 kB."""
    sources = [tmp_path / "a" / f"{name}.cpp" for name in "pqrst"] + [tmp_path / "b" / "u.cpp"]
    for source in sources:
        source.parent.mkdir(exist_ok=True)
        source.write_text("/" * (30 if source.parent.name == "a" else 1) * KILOBYTE)
    return sources


def test_translation_units_are_of_one_folder_and_of_even_size(folders: list[Path]) -> None:
    units = list(translation_units(folders, ()))
    assert [[source.stem for source in unit] for unit in units] == [
        ["p", "q"], ["r"], ["s", "t"], ["u"],
    ]  # fmt: skip


def test_translation_units_leave_sources_alone(folders: list[Path]) -> None:
    units = list(translation_units(folders, ("q.cpp", "u.cpp")))
    assert [[source.stem for source in unit] for unit in units] == [
        ["p", "r"], ["s", "t"], ["q"], ["u"],
    ]  # fmt: skip


def test_units_of_the_libraries_have_every_source_once() -> None:
    for library in native_libraries(find_installation()):
        assert sorted(source for unit in library.units for source in unit) == list(library.sources)


def test_every_source_is_in_a_library() -> None:
    """A folder that the table of deferred libraries does not name would be left out silently."""
    libraries = native_libraries(find_installation())
    built = {source for library in libraries for source in library.sources}
    # Only with a CUDA build of torch.
    optional = set((NATIVE / "cuda_build").glob("*.cpp"))

    assert set(NATIVE.glob("**/*.cpp")) - optional == built - optional


def test_runtimes_share_all_units_but_one() -> None:
    value, address = (
        set(library.units)
        for library in native_libraries(find_installation())
        if library.name == "libascendcl.so"
    )
    (only,) = value ^ address
    assert [source.name for source in only] == ["value_signal.cpp"]


def test_no_function_of_an_unnamed_namespace_has_its_name_twice_in_a_folder() -> None:
    """The compiler would take the second for an overload of the first, without a word."""
    places: dict[tuple[Path, str], set[str]] = defaultdict(set)
    for library in native_libraries(find_installation()):
        for source in library.sources:
            for name in unnamed_functions(source.read_text()):
                places[source.parent, name].add(source.name)
    assert {name: where for name, where in places.items() if len(where) > 1} == {}
    # As many as there were when this was written, or more: it does read them.
    assert len(places) >= 500


@pytest.mark.parametrize(
    "text",
    [
        "void Name(int count) {",
        "const at::Tensor& Name(const Tensor& x) {",
        "std::vector<std::pair<int, char*>> Name() {",
        "constexpr int64_t Name(int64_t value) { return value; }",
        "template <class T>\nT* Name(T* value) {",
        "[[noreturn]] void Name(const char* text);",
    ],
)
def test_functions_of_unnamed_namespaces_are_found(text: str) -> None:
    assert unnamed_functions(f"namespace {{\n\n{text}\n}}\n\n}}  // namespace\n") == {"Name"}
