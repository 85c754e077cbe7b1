"""Fusions on one page: the graph before and after each, near misses, nothing from elsewhere."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING

import torch
from torch import Tensor

import fx_passes
from fx_passes.fusions import fuse_add_rms_norm, fuse_swiglu
from fx_passes.reports import PageObserver
from fx_passes.testing import capture_graph, random_tensors

if TYPE_CHECKING:
    from pathlib import Path

    from torch.fx import GraphModule, Node

# Elements that have no end.
VOID = {"meta"}


class Page(HTMLParser):
    """Parses a page: checks that it is well-formed, and collects its links and texts by class."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[tuple[str, str]] = []
        self.texts: dict[str, list[str]] = {}
        self.tags: set[str] = set()
        self.references: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = dict(attrs)
        self.tags.add(tag)
        self.references += [str(known[name]) for name in ("src", "href") if name in known]
        if tag not in VOID:
            self.open.append((tag, known.get("class") or ""))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop()[0] == tag

    def handle_data(self, data: str) -> None:
        if self.open:
            self.texts.setdefault(self.open[-1][1] or self.open[-1][0], []).append(data)


def norm_graph(alpha: int = 3) -> GraphModule:
    def function(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        npu = torch.ops.npu
        fused = npu.npu_rms_norm(x + residual, weight, 1e-5)[0]
        missed = npu.npu_rms_norm(torch.add(x, residual, alpha=alpha), weight, 1e-5)[0]
        return fused, missed

    return capture_graph(function, random_tensors((3, 8), (3, 8), (8,)))


def pipeline(observer: PageObserver) -> fx_passes.Pipeline:
    rules = fx_passes.RulePass(name="rules", rules=(fuse_add_rms_norm(), fuse_swiglu()))
    return fx_passes.Pipeline(passes=(fx_passes.NormalizePass(), rules), observers=(observer,))


def page_of(observer: PageObserver) -> Page:
    page = Page(observer.html())
    assert page.open == []
    return page


def test_a_fusion_is_shown_with_the_graph_before_and_after_it() -> None:
    observer = PageObserver()
    pipeline(observer).run(norm_graph())
    page = page_of(observer)

    gone, new = "".join(page.texts["gone"]), "".join(page.texts["new"])
    assert re.search(r"add: bfloat16\[3, 8\] = aten\.add\.Tensor\(l_x_, l_residual_\)", gone)
    assert "npu.npu_rms_norm.default" in gone
    assert "npu.npu_add_rms_norm.default(l_x_, l_residual_, l_weight_, 1e-05)" in new
    assert "npu_rms_norm.default" not in new
    assert any("l_x_: bfloat16[3, 8] = input" in text for text in page.texts["near"])


def test_near_misses_are_shown_with_their_reasons() -> None:
    observer = PageObserver()
    pipeline(observer).run(norm_graph())
    page = page_of(observer)

    assert any("expected 1, found 3" in text for text in page.texts["li"])
    assert any("no graph has a call of" in text for text in page.texts["td"])
    assert page.texts["number"][:2] == ["1", "1"]


def test_the_page_needs_nothing_else() -> None:
    observer = PageObserver()
    pipeline(observer).run(norm_graph())
    page = page_of(observer)

    assert page.references == []
    assert page.tags.isdisjoint({"script", "link", "img", "iframe", "object"})
    assert "url(" not in "".join(page.texts["style"])
    assert "@import" not in "".join(page.texts["style"])


def test_an_introduction_precedes_the_fusions() -> None:
    observer = PageObserver()
    pipeline(observer).run(norm_graph())

    assert observer.html("<p>first</p>").index("<p>first</p>") < observer.html("x").index("<h1>")


def test_all_graphs_of_a_model_are_on_one_page(tmp_path: Path) -> None:
    observer = PageObserver()
    for _ in range(3):
        pipeline(observer).run(norm_graph())
    path = tmp_path / "new" / "page.html"

    observer.write(path)

    page = Page(path.read_text(encoding="utf-8"))
    assert page.texts["h1"] == ["Rewrites: 3, graphs: 3"]
    assert page.texts["h2"] == ["Graph 1", "Graph 2", "Graph 3"]


def test_text_of_the_graph_is_escaped() -> None:
    def check(match: fx_passes.Match) -> fx_passes.NoMatch:
        return fx_passes.NoMatch("<script>alert(1)</script> & more", match.nodes)

    def pattern(x: Tensor) -> dict[str, Tensor]:
        return {"y": x.neg()}

    def rewrite(match: fx_passes.Match, build: fx_passes.GraphBuilder) -> dict[str, Node]:
        return {"y": build.call("aten::abs", match.bound["x"])}

    rule = fx_passes.Rule(name="<b>", patterns=(pattern,), check=check, rewrite=rewrite)
    rules = fx_passes.RulePass(name="rules", rules=(rule,))
    observer = PageObserver()
    passes = (fx_passes.NormalizePass(), rules)
    graph = capture_graph(lambda x: x.neg(), random_tensors((3,), device="cpu"))
    fx_passes.Pipeline(passes=passes, observers=(observer,)).run(graph)

    page = page_of(observer)

    assert "script" not in page.tags
    assert "b" not in page.tags
    assert any("<script>alert(1)</script> & more" in text for text in page.texts["li"])


def test_no_run_is_a_page_too() -> None:
    assert page_of(PageObserver()).texts["h1"] == ["Rewrites: 0, graphs: 0"]
