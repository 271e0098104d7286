"""A page of results with plots: plain SVG bars, in a light and a dark theme, beside the same table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path

from scripts.evaluation.judging import TurnFigures
from scripts.evaluation.report import OURS, Row, SetReport, table

LABEL, BARS, FIGURE, HIGH, GAP = 150, 480, 60, 13, 12
STYLE = """<style>
svg { --ink: #1f2933; --soft: #66727f; --paper: #f5f7f9; background: var(--paper); font-size: 12px;
  font-family: system-ui, "Helvetica Neue", Arial, sans-serif; }
@media (prefers-color-scheme: dark) { svg { --ink: #e6ebf0; --soft: #9aa7b4; --paper: #161c22; } }
text { fill: var(--ink); } text.soft { fill: var(--soft); } text.end { text-anchor: end; }
.s0 { fill: #2f6f8f; } .s1 { fill: #7fb2c9; } .s2 { fill: #b58a3c; }
.s3 { fill: #8a7fb5; } .s4 { fill: #5c9a6b; } .s5 { fill: #b5655c; }
</style>"""
TITLES = {
    "ranking": ("排序 · Ranking", "nDCG@10"),
    "refusal": ("拒答与校准 · Refusal and calibration", "有答案而拒答越低越好，无答案而拒答越高越好 · share"),
    "turns": ("整轮问答 · Whole turns", "占问题的比例 · share of the questions"),
}
PAGE = """# 测量结果 · Measured quality

由 `wenmai evaluate` 写成，没有用大模型；怎么测、怎么读，见使用指南的“衡量质量”。

Written by `wenmai evaluate`, without a language model; the guide's "Measuring quality" explains the columns.
"""
Groups = Mapping[str, Mapping[str, float | None]]
"""The bars of each group, by series."""


def write_page(folder: Path, reports: Sequence[SetReport]) -> None:
    """Write README.md and its plots; a plot without bars is omitted."""
    folder.mkdir(parents=True, exist_ok=True)
    parts = [PAGE]
    for name, groups in _plots(reports).items():
        title, unit = TITLES[name]
        if groups:
            (folder / f"{name}.svg").write_text(bars(title, unit, groups), encoding="utf-8")
            parts.append(f"## {title}\n\n![{title}]({name}.svg)\n")
    parts.append(f"## 全部数字 · All figures\n\n{table(reports)}")
    (folder / "README.md").write_text("\n".join(parts), encoding="utf-8")


def bars(title: str, unit: str, groups: Groups) -> str:
    """Return horizontal bars of 0 to 1, group by group, one colour per series; None draws no bar."""
    names = dict.fromkeys(name for figures in groups.values() for name in figures)
    series = {name: at for at, name in enumerate(names)}
    width, height = LABEL + BARS + FIGURE, 60 + sum(len(each) * HIGH + GAP for each in groups.values())
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" role="img" aria-label="{escape(title)}">',
        f"<title>{escape(title)}</title>",
        STYLE,
        f'<text class="soft" x="12" y="18">{escape(unit)}</text>',
        *_legend(series),
        *_groups(groups, series),
    ]
    return "\n".join([*parts, "</svg>\n"])


def _legend(series: Mapping[str, int]) -> Iterator[str]:
    x = 12
    for name, at in series.items():
        yield f'<rect class="s{at}" x="{x}" y="30" width="10" height="10"/>'
        yield f'<text x="{x + 14}" y="39">{escape(name)}</text>'
        x += 30 + 7 * len(name)


def _groups(groups: Groups, series: Mapping[str, int]) -> Iterator[str]:
    y = 56
    for group, figures in groups.items():
        middle = y + len(figures) * HIGH / 2 + 4
        yield f'<text class="end" x="{LABEL - 8}" y="{middle:g}">{escape(group)}</text>'
        for name, figure in figures.items():
            if figure is not None:
                yield _bar(f"s{series[name]}", y, figure)
            y += HIGH
        y += GAP


def _bar(colour: str, y: int, figure: float) -> str:
    width = max(1.0, figure * BARS)
    return (
        f'<rect class="{colour}" x="{LABEL}" y="{y}" width="{width:.1f}" height="{HIGH - 2}"/>'
        f'<text class="soft" x="{LABEL + width + 5:.1f}" y="{y + 10}">{figure:.3f}</text>'
    )


def _plots(reports: Sequence[SetReport]) -> dict[str, Groups]:
    measured = [report for report in reports if report.rows]
    refusing = {report.name: _refusal(report.rows[0]) for report in measured if report.rows[0].refusal}
    return {
        "ranking": {report.name: _ranking(report.rows) for report in measured},
        "refusal": refusing,
        "turns": {report.name: _turns(report.turns[""]) for report in reports if report.turns},
    }


def _ranking(rows: Sequence[Row]) -> dict[str, float | None]:
    lists = {row.name: row.retrieval.ndcg_10 if row.retrieval else None for row in rows}
    shown = {OURS: lists[OURS], f"{OURS}, shown": rows[0].ndcg_10_above}
    return shown | {name: lists[name] for name in ("dense", "sparse", "rrf") if name in lists}


def _refusal(row: Row) -> dict[str, float | None]:
    refused = row.refusal
    assert refused is not None
    return {
        "answerable refused": refused.refused_wrongly,
        "unanswerable refused": refused.refused_rightly,
        "balanced accuracy": refused.balanced_accuracy,
        "ECE": row.calibration_error,
    }


def _turns(figures: TurnFigures) -> dict[str, float | None]:
    return {
        "right first": figures.first,
        "cited": figures.cited,
        "readable": figures.readable,
        "wrongly refused": figures.refused_wrongly,
        "unanswerable as sure": figures.sure,
        "right language": figures.in_language,
    }
