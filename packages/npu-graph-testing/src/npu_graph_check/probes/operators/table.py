"""The probes of operators."""

from __future__ import annotations

from npu_graph_check.probes.operators.fused.table import FUSED
from npu_graph_check.probes.probe_table import probes_of

_PLAIN = probes_of(
    "operators",
    """
rounding             arithmetic:rounding           arithmetic-1
    Sums of halves round ties to even
products             arithmetic:products           arithmetic-5
    Matrix products of halves accumulate in float32, on every road to a product
scaled-products      arithmetic:scaled_products    arithmetic-7
    A product and what is added to it are rounded once
sums                 arithmetic:sums               arithmetic-13
    Sums and means accumulate in float32
ties                 arithmetic:ties               arithmetic-15
    Of equal values the first is the largest
halves               quantising:halves             quantise-1
    int8 takes the nearest, ties to even, limited
not-a-number         quantising:not_a_number       quantise-2
    NaN becomes 0 in int8
dynamic              quantising:dynamic            quantise-7
    A row of zeros is quantised with scale 0
numbers              scalars:numbers               arithmetic-2
    A number is rounded to the tensor's dtype in sums, to float16 alone in products
scaled-sums          scalars:scaled_sums           arithmetic-3
    A scaled sum of bfloat16 rounds its product, one of float16 and a difference do not
stepwise-products    scalars:stepwise_products     arithmetic-4
    Scaled products of float16 round every step
mixed-products       scalars:mixed_products        arithmetic-6
    Batched products take float32 beside a half, and refuse two halves
rms-norm             norms:rms_norm                arithmetic-8
    RMSNorm is rounded once
add-rms-norm         norms:add_rms_norm            arithmetic-8 arithmetic-9
    AddRmsNorm rounds the norm before the weight
rounded-sum          norms:rounded_sum             arithmetic-9
    AddRmsNorm normalises the rounded sum in float16, the float32 one in bfloat16
add-rms-norm-cast    norms:add_rms_norm_cast       quantise-18
    The float32 result of AddRmsNormCast is the rounded one
quantised-norm       norms:quantised_norm          quantise-12 quantise-13
    AddRmsNormQuant rounds the norm in float16, not in bfloat16
dynamic-sum          norms:dynamic_sum             quantise-16
    AddRmsNormDynamicQuant normalises the float32 sum in float16 too
with-beta            norms:with_beta               quantise-14
    A bias is added to the norm before it is quantised
scale-dtypes         norms:scale_dtypes            quantise-10 quantise-11
    AddRmsNormQuant takes float32 scales and int32 zero points beside float16
interleaved          activations:interleaved       rotary-2
    Interleaved rotary embeddings sort neighbours into halves
gelu                 activations:gelu              arithmetic-12
    GELU is the tanh form, whatever is asked
geglu                activations:geglu             quantise-23
    GeGLU rounds the product once, and its activation once
rotary               activations:rotary            arithmetic-10
    Rotary embeddings are rounded once
accumulation         training:accumulation         arithmetic-16
    Losses, pools and convolutions accumulate in float32
layer-norms          training:layer_norms          arithmetic-16
    Norms and softmax of halves are rounded once
dropout-masks        training:dropout_masks        arithmetic-17
    A dropout mask has a bit for each value, the lowest first
pooling-gradient     training:pooling_gradient     arithmetic-18
    The gradient of a maximum finds its place again
lstm-cell            training:lstm_cell            arithmetic-20
    The gates of a fused LSTM cell are input, forget, candidate and output
matrix-vector        training:matrix_vector        arithmetic-23 arithmetic-24
    addmv scales the vector by beta and the product by alpha
uniform              sampling:uniform              random-3
    Uniform values are multiples of 2^-24, and never the upper end
without-replacement  sampling:without_replacement  random-4
    Draws without replacement follow the weights that are left
top-k-top-p          sampling:top_k_top_p          random-5
    Of equal logits the first is kept; a token is kept below p
statuses             calls:statuses                call-1 call-2 call-11 call-14
    A null pointer is 161001; a repeatable executor is launched twice
refused-dtypes       calls:refused_dtypes          call-2 call-3
    Dtypes that documents leave out are refused
other-products       calls:other_products          call-8 call-19
    An operator of other products is refused with 561112
scalars-and-strides  calls:scalars_and_strides     call-4 call-5
    Operators take scalars, and tensors that are not contiguous
shapes-of-results    calls:shapes_of_results       call-17
    Results of a shape that only the kernel knows come behind what is queued
""",
)

_LAST = probes_of(
    "operators",
    """
outside-index        calls:outside_index           call-15 stream-5
    A kernel that reads outside its tensor fails with 507015
    a kernel that fails stops the device for the other streams of its process
""",
)

OPERATORS = (*_PLAIN, *FUSED, *_LAST)
