"""The results of `run.py` as tables and a figure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

Results = dict[str, Any]


def table(results: Results) -> str:
    """Markdown: our own costs against size, then every library at each size."""
    sizes = sorted(results, key=int)
    ours = {size: results[size]["retriever"] for size in sizes}
    lines = [f"{results[sizes[-1]]['environment']}.", "", *_costs(ours), ""]
    for size in sizes:
        if len(results[size]) <= 2:
            continue
        lines += [f"### {int(size):,} passages beside other libraries, one thread", ""]
        lines += [*_peers(results[size]), ""]
    return "\n".join(lines)


def _rows(
    title: str, sizes: Iterable[str], rows: list[tuple[str, Callable[[str], str]]]
) -> Iterator[str]:
    sizes = list(sizes)
    yield f"| {title} | " + " | ".join(f"{int(size):,}" for size in sizes) + " |"
    yield "|---" * (len(sizes) + 1) + "|"
    for name, value in rows:
        yield f"| {name} | " + " | ".join(value(size) for size in sizes) + " |"


def _costs(ours: Results) -> Iterable[str]:
    def of(*path: str, form: Callable[[Any], str] = str) -> Callable[[str], str]:
        def value(size: str) -> str:
            found = ours[size]
            for name in path:
                if not isinstance(found, dict) or name not in found:
                    return ""
                found = found[name]
            return form(found)

        return value

    rows: list[tuple[str, Callable[[str], str]]] = [
        ("structure", of("1 threads", "structure", form=", ".join)),
        ("adding, s", of("build", "add_s", form=_seconds)),
        ("structure, s", of("build", "structure_s", form=_seconds)),
        ("size", of("build", "bytes", form=_bytes)),
        ("peak of own memory, building", of("build", "peak", form=_bytes)),
        ("opening, ms", of("1 threads", "open_ms", form=_milliseconds)),
        ("own memory, open", of("1 threads", "memory_open", "anonymous", form=_bytes)),
        ("own memory, at the end", of("1 threads", "memory_end", "anonymous", form=_bytes)),
        ("with mapped files, at the end", of("1 threads", "memory_end", "resident", form=_bytes)),
        ("first BM25 query, ms", of("1 threads", "first_bm25_ms", form=_milliseconds)),
        *(
            (name, of("1 threads", name, form=lambda value: f"{value:.3f}"))
            for name in ("recall@10", "recall@10, 50%", "recall@10, 5%", "recall@10, 0.1%")
        ),
    ]
    for threads in ("1 threads", "2 threads"):
        label = threads.replace("1 threads", "1 thread")
        for mode in ("dense", "bm25"):
            ranking = f"{mode} ranking"
            rows.append((f"{ranking}, {label}, ms", of(threads, ranking, form=_both)))
            again = of(threads, f"{ranking} again", form=_both)
            rows.append((f"{ranking} again, {label}, ms", again))
        for mode in ("dense", "bm25", "hybrid"):
            rows.append((f"{mode}, {label}, ms", of(threads, mode, form=_both)))
    for new in ("", "new, "):
        for mode in ("dense", "bm25", "hybrid"):
            for share in ("50%", "5%", "0.1%"):
                allowed = f"{share} allowed by a new filter" if new else f"{share} allowed"
                value = of("1 threads", f"{mode}, {new}{share}", form=_both)
                rows.append((f"{mode}, {allowed}, ms", value))
    rows += [
        ("adding 1,000, ms", of("change", "add_1000_ms", form=_milliseconds)),
        ("deleting 1,000, ms", of("change", "delete_1000_ms", form=_milliseconds)),
        ("dense after both, ms", of("changed", "dense", form=_both)),
        ("bm25 after both, ms", of("changed", "bm25", form=_both)),
    ]
    return _rows("cost", ours, rows)


def _peers(results: Results) -> Iterable[str]:
    yield "| | build, s | size | open, ms | dense, ms | recall@10 | BM25, ms | first BM25, ms |"
    yield "|---|---|---|---|---|---|---|---|"
    for name, measured in results.items():
        if name == "environment":
            continue
        found = _as_peer(measured) if name == "retriever" else measured
        if "failed" in found:
            yield f"| {name} | {found['failed']} | | | | | | |"
            continue
        cells = [
            _cell(found, "build_s", _seconds),
            _cell(found, "bytes", _bytes),
            _cell(found, "open_ms", _milliseconds),
            _cell(found, "dense", _both),
            _cell(found, "recall@10", lambda value: f"{value:.3f}"),
            _cell(found, "bm25", _both),
            _cell(found, "first_bm25_ms", _milliseconds),
        ]
        yield f"| {name} | " + " | ".join(cells) + " |"


def _as_peer(found: Results) -> Results:
    """Ranking alone, which is what is measured of the peers."""
    search, build = found["1 threads"], found["build"]
    return {
        **{name: search[name] for name in ("open_ms", "first_bm25_ms", "recall@10")},
        "dense": search["dense ranking"],
        "bm25": search["bm25 ranking"],
        "build_s": build["add_s"] + build["structure_s"],
        "bytes": build["bytes"],
    }


def _cell(found: Results, name: str, form: Callable[[Any], str]) -> str:
    return form(found[name]) if name in found else ""


def _seconds(value: float) -> str:
    return f"{value:,.1f}" if value < 10 else f"{value:,.0f}"


def _milliseconds(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:,.0f}"


def _both(value: dict[str, float]) -> str:
    return f"{_milliseconds(value['p50'])} / {_milliseconds(value['p95'])}"


def _bytes(value: float) -> str:
    return f"{value / 1e6:,.0f} MB" if value < 1e9 else f"{value / 1e9:,.1f} GB"


def figure(results: Results, path: Path) -> None:
    """Median latency against size, both axes logarithmic: a panel for dense and one for BM25."""
    from matplotlib.figure import Figure

    sizes = sorted(results, key=int)
    drawn = Figure(figsize=(10, 4), layout="constrained")
    for axes, mode in zip(drawn.subplots(1, 2), ("dense", "bm25"), strict=True):
        again = "retriever, again"
        for name in dict.fromkeys((again, *(name for size in sizes for name in results[size]))):
            points = []
            for size in sizes:
                found = results[size].get("retriever" if name == again else name)
                if name == "environment" or found is None:
                    continue
                if name in ("retriever", again):
                    ranking = f"{mode} ranking{' again' if name == again else ''}"
                    found = {mode: found["1 threads"][ranking]}
                if mode in found:
                    points.append((int(size), found[mode]["p50"]))
            if points:
                axes.plot(*zip(*points, strict=True), marker="o", label=name)
        axes.set(xscale="log", yscale="log", xlabel="passages", ylabel="p50, ms", title=mode)
        axes.grid(visible=True, alpha=0.3)
        axes.legend(fontsize=8)
    drawn.savefig(path, dpi=120)
