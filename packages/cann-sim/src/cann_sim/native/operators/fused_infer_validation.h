// What the device demands of a call of FusedInferAttentionScore.
#pragma once

#include <vector>

#include "argument.h"
#include "fused_infer_attention.h"

namespace cann_sim::operators {

struct LayoutPair {
  const char* name;
  QueryLayout query;
  OutputLayout output;
};

// The layouts that a name stands for; refused where there is none of this name.
const LayoutPair& FindLayout(const Text& layout);

// The sequences of a packed layout, from running totals of queries and, without pages, of keys.
std::vector<Sequence> PackedSequences(const FusedInferAttention& call, const OptionalIntArray& query_totals,
                                      const OptionalIntArray& key_lengths);
// The sequences of a layout with a batch dimension.
std::vector<Sequence> BatchSequences(const FusedInferAttention& call, const OptionalIntArray& query_lengths,
                                     const OptionalIntArray& key_lengths);

void RequireHeads(const FusedInferAttention& call);
void RequirePages(const FusedInferAttention& call, int64_t batch);
// Scales of int8 keys or values; `mode` is 0 for one scale or one for each head and dimension, 1 for one for each token.
Dequantization MakeDequantization(const FusedInferAttention& call, const Tensor& cache, const OptionalTensor& scale,
                                  const OptionalTensor& offset, int64_t mode);
// The separate rotary parts, where there are any.
void RequireRope(const FusedInferAttention& call);
// Needs the sequences.
void RequireMask(const FusedInferAttention& call);
void RequireOutputs(const FusedInferAttention& call);

}  // namespace cann_sim::operators
