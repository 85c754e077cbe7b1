"""The probes of operators."""

from __future__ import annotations

from npu_graph_check.probe import Probe
from npu_graph_check.probes.operators.fused.table import FUSED

_PACKAGE = "npu_graph_check.probes.operators"

PLAIN: tuple[Probe, ...] = tuple(
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
        (
            "scalars",
            "numbers",
            ("arithmetic-2",),
            "A number is rounded to the tensor's dtype in sums, to float16 alone in products",
        ),
        (
            "scalars",
            "scaled_sums",
            ("arithmetic-3",),
            "A scaled sum of bfloat16 rounds its product, one of float16 and a difference do not",
        ),
        (
            "scalars",
            "stepwise_products",
            ("arithmetic-4",),
            "Scaled products of float16 round every step",
        ),
        (
            "scalars",
            "mixed_products",
            ("arithmetic-6",),
            "Batched products take float32 beside a half, and refuse two halves",
        ),
        ("norms", "rms_norm", ("arithmetic-8",), "RMSNorm is rounded once"),
        (
            "norms",
            "add_rms_norm",
            ("arithmetic-8", "arithmetic-9"),
            "AddRmsNorm rounds the norm before the weight",
        ),
        (
            "norms",
            "rounded_sum",
            ("arithmetic-9",),
            "AddRmsNorm normalises the rounded sum in float16, the float32 one in bfloat16",
        ),
        (
            "norms",
            "add_rms_norm_cast",
            ("quantise-18",),
            "The float32 result of AddRmsNormCast is the rounded one",
        ),
        (
            "norms",
            "quantised_norm",
            ("quantise-12", "quantise-13"),
            "AddRmsNormQuant rounds the norm in float16, not in bfloat16",
        ),
        (
            "norms",
            "dynamic_sum",
            ("quantise-16",),
            "AddRmsNormDynamicQuant normalises the float32 sum in float16 too",
        ),
        (
            "norms",
            "with_beta",
            ("quantise-14",),
            "A bias is added to the norm before it is quantised",
        ),
        (
            "norms",
            "scale_dtypes",
            ("quantise-10", "quantise-11"),
            "AddRmsNormQuant takes float32 scales and int32 zero points beside float16",
        ),
        (
            "activations",
            "interleaved",
            ("rotary-2",),
            "Interleaved rotary embeddings sort neighbours into halves",
        ),
        ("activations", "gelu", ("arithmetic-12",), "GELU is the tanh form, whatever is asked"),
        (
            "activations",
            "geglu",
            ("quantise-23",),
            "GeGLU rounds the product once, and its activation once",
        ),
        (
            "activations",
            "rotary",
            ("arithmetic-10",),
            "Rotary embeddings are rounded once",
        ),
        (
            "training",
            "accumulation",
            ("arithmetic-16",),
            "Losses, pools and convolutions accumulate in float32",
        ),
        (
            "training",
            "layer_norms",
            ("arithmetic-16",),
            "Norms and softmax of halves are rounded once",
        ),
        (
            "training",
            "dropout_masks",
            ("arithmetic-17",),
            "A dropout mask has a bit for each value, the lowest first",
        ),
        (
            "training",
            "pooling_gradient",
            ("arithmetic-18",),
            "The gradient of a maximum finds its place again",
        ),
        (
            "training",
            "lstm_cell",
            ("arithmetic-20",),
            "The gates of a fused LSTM cell are input, forget, candidate and output",
        ),
        (
            "training",
            "matrix_vector",
            ("arithmetic-23", "arithmetic-24"),
            "addmv scales the vector by beta and the product by alpha",
        ),
        (
            "sampling",
            "uniform",
            ("random-3",),
            "Uniform values are multiples of 2^-24, and never the upper end",
        ),
        (
            "sampling",
            "without_replacement",
            ("random-4",),
            "Draws without replacement follow the weights that are left",
        ),
        (
            "sampling",
            "top_k_top_p",
            ("random-5",),
            "Of equal logits the first is kept; a token is kept below p",
        ),
        (
            "calls",
            "statuses",
            ("call-1", "call-2", "call-11", "call-14"),
            "A null pointer is 161001; a repeatable executor is launched twice",
        ),
        (
            "calls",
            "refused_dtypes",
            ("call-2", "call-3"),
            "Dtypes that documents leave out are refused",
        ),
        (
            "calls",
            "other_products",
            ("call-8", "call-19"),
            "An operator of other products is refused with 561112",
        ),
        (
            "calls",
            "scalars_and_strides",
            ("call-4", "call-5"),
            "Operators take scalars, and tensors that are not contiguous",
        ),
        (
            "calls",
            "shapes_of_results",
            ("call-17",),
            "Results of a shape that only the kernel knows come behind what is queued",
        ),
    )
)

OUTSIDE = Probe(
    id="operators.outside-index",
    title="A kernel that reads outside its tensor fails with 507015",
    run=f"{_PACKAGE}.calls:outside_index",
    rows=("call-15", "stream-5"),
    risk="a kernel that fails stops the device for the other streams of its process",
)

OPERATORS = (*PLAIN, *FUSED, OUTSIDE)
