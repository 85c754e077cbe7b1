"""The probes of operators."""

from __future__ import annotations

from npu_graph_check.probe import Probe

_PACKAGE = "npu_graph_check.probes.operators"

OPERATORS: tuple[Probe, ...] = tuple(
    Probe(
        id=f"operators.{function.replace('_', '-')}",
        title=title,
        run=f"{_PACKAGE}.{module}:{function}",
        rows=rows,
        limit_s=60,
    )
    for module, function, rows, title in (
        ("arithmetic", "rounding", ("arithmetic-1",), "Sums of halves round ties to even"),
        (
            "arithmetic",
            "products",
            ("arithmetic-5",),
            "Matrix products of halves accumulate in float32, on every road to a product",
        ),
        (
            "arithmetic",
            "scaled_products",
            ("arithmetic-7",),
            "A product and what is added to it are rounded once",
        ),
        ("arithmetic", "sums", ("arithmetic-13",), "Sums and means accumulate in float32"),
        ("arithmetic", "ties", ("arithmetic-15",), "Of equal values the first is the largest"),
        ("quantising", "halves", ("quantise-1",), "int8 takes the nearest, ties to even, limited"),
        ("quantising", "not_a_number", ("quantise-2",), "NaN becomes 0 in int8"),
        ("quantising", "dynamic", ("quantise-7",), "A row of zeros is quantised with scale 0"),
        ("masked_rows", "no_keys", ("fia-9",), "A sequence without keys gives zeros"),
        (
            "masked_rows",
            "causal_with_one_query",
            ("fia-6", "fia-8"),
            "With one query a sequence the causal mask changes nothing",
        ),
    )
)
