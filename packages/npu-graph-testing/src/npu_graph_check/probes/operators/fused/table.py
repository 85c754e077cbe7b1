"""The probes of the fused operators that engines call."""

from __future__ import annotations

from npu_graph_check.probes.probe_table import probes_of

FUSED = probes_of(
    "operators.fused",
    """
no-keys                masked_rows:no_keys                  fia-9 fia-3
    A sequence without keys gives zeros
causal-with-one-query  masked_rows:causal_with_one_query    fia-6 fia-8
    With one query a sequence the causal mask changes nothing
rows-past-lengths      infer_attention:rows_past_lengths    fia-10 fia-11
    Rows of fused attention past the lengths are zeros
compressed-mask        infer_attention:compressed_mask      fia-7
    A compressed mask that is 0 hides nothing
shared-prefix          infer_attention:shared_prefix        fia-21
    A shared prefix counts as keys, also for the causal mask
padding-on-the-left    infer_attention:padding_on_the_left  fia-22
    Padded rows and keys end before the end of their layout
position-shift         infer_attention:position_shift       fia-20
    A position shift is added to the scaled scores
quantised-output       infer_attention:quantised_output     fia-24
    An output in int8 is scaled, moved and rounded
one-length             infer_attention:one_length           fia-4
    One length stands for all sequences
older-attention        infer_attention:older_names          fia-25
    PromptFlashAttention and IncreFlashAttention are fused attention
latent-statistics      infer_attention:latent_statistics    fia-16
    Log-sum-exps are given for latent keys too
quantised-latent-keys  latent:quantised_keys                kvquant-1 kvquant-2 kvquant-3 kvquant-4
    A row of 656 bytes holds a latent key, its rotary part and its scales
prolog                 prolog:plain                         prolog-1 prolog-7
    MlaProlog stores keys at their slots and leaves a negative one out
prolog-by-tile         prolog:by_tile                       prolog-4 prolog-5
    A clipped scale of a tile cuts what is then too large
image-formats          caches:image_formats                 nz-2
    Formats of images and volumes are cast to and from
normalised-rows        caches:normalised_rows               cache-3 cache-2
    Latent rows are normalised, rotated and stored
quantised-blocks       quantised:blocks                     quantise-33
    Each 128 values of a row have a scale
sparse-attention       latent:sparse_attention              sfa-1 sfa-2 sfa-3 sfa-4 sfa-5
    Sparse attention sees what is selected; a query without a key gives zeros
indexer                latent:indexer                       indexer-2 indexer-3
    Of equal scores the indexer takes the lower key; rows past the totals are -1
indexer-of-few-keys    latent:few_keys                      indexer-1 indexer-2
    Behind the last key the indexer gives -1
delta-rule             latent:delta_rule                    delta-1 delta-3
    The gated delta rule stores a state behind each token; other states are refused
expert-ties            experts:gating_ties                  moe-1 moe-3
    Of equal experts the first is chosen; a finished row has none
expert-weights         experts:gating_weights               moe-2
    Weights of experts add up to one as sigmoids, or where that is asked for
expert-rows            experts:routing                      moe-4 moe-5
    Rows are sorted stably by expert, and zeros where a capacity leaves room
expert-sums            experts:finalizing                   moe-7 moe-8
    Rows of experts are added in float32, rounded once
grouped-products       experts:grouped_products             moe-10
    Grouped products multiply each group with its own matrix
cache-slots            caches:scatter                       cache-1 cache-2
    Rows go to their slots of both kinds of caches; a negative slot is left out
cache-pages            caches:gather                        cache-5
    A page that is not in the cache is read as zeros
nz-format              caches:nz_format                     nz-1 nz-3
    A tensor in the NZ format has the values of the plain one
plain-format           caches:plain_format                  call-16
    Where internal formats are not allowed, a cast to NZ is a plain copy
flash-statistics       flash:statistics                     flash-1 flash-2
    FlashAttentionScore gives its statistics eight times in float32
flash-hidden-rows      flash:hidden_rows                    flash-9 flash-8
    A row whose keys are all hidden gives zeros
torch-attention        flash:torch_function                 flash-10
    torch's own attention is right
joined-rings           flash:joined_rings                   flash-6
    Attention over two parts of the keys joins to that over all
atb-paged-attention    atb:paged_attention                  atb-2 atb-8
    A sequence without keys gives zeros in ATB's paged attention
atb-quantising         atb:quantising                       atb-12
    ATB's quantisation rounds before it adds the offset
atb-norm               atb:quantised_norm                   atb-12
    ATB's quantised norm divides by the scale
int4                   quantised:int4                       quantise-6
    The first int4 is in the lowest bits
scale-of-quantising    quantised:divides_and_multiplies     quantise-3
    Quantize divides by its scale, AscendQuantV3 multiplies
smoothed-groups        quantised:smoothed_groups            quantise-8
    Rows behind the last group are not smoothed
only-by-token          quantised:only_by_token              quantise-9
    Dynamic quantisation goes by token only
quantised-swiglu       quantised:swiglu                     quantise-24 quantise-25
    The two quantised SwiGLU give scales that are reciprocals
quantised-groups       quantised:grouped                    quantise-28
    Rows are quantised with the scales of their groups
kronecker              quantised:kronecker                  quantise-29
    A clipped scale cuts the values that are larger
shortened-scales       quantised:shortened_scales           quantise-22 quantise-20
    Scales of 19 bits are cut, or rounded with halves up
quantised-products     quantised:products                   quantise-19
    Products of int8 are exact, scaled and rounded once
weights-of-int8        quantised:weights_of_int8            quantise-27
    Matrices of int8 are dequantised beside float16 rows
""",
)
