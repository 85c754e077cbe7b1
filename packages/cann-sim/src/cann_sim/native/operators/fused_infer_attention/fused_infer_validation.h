// What the device demands of a call of FusedInferAttentionScore.
#pragma once

#include <vector>

#include "../interface/argument.h"
#include "fused_infer_attention.h"

namespace cann_sim::operators {

struct LayoutPair {
  const char* name;
  QueryLayout query;
  OutputLayout output;
};

// The layouts of a name; an unknown name is rejected.
const LayoutPair& FindLayout(const Text& layout);

// The sequences of a packed layout, from running totals of queries and, without pages, of keys.
std::vector<Sequence> PackedSequences(const FusedInferAttention& call, const OptionalIntArray& query_totals,
                                      const OptionalIntArray& key_lengths);
// The sequences of a layout with a batch dimension.
std::vector<Sequence> BatchSequences(const FusedInferAttention& call, const OptionalIntArray& query_lengths,
                                     const OptionalIntArray& key_lengths);

void RequireHeads(const FusedInferAttention& call);
void RequirePages(const FusedInferAttention& call, int64_t batch);
// Checks the scales `scale` of int8 keys or values, of which those of this cache have the shape `sizes`, and gives those in `how`
// the shape that the mode has.
void RequireDequantization(const FusedInferAttention& call, const Tensor& cache, const Tensor& scale,
                           c10::IntArrayRef sizes, int64_t mode, Dequantization& how);
// The shared prefix, where there is one; stores its length.
void RequirePrefix(FusedInferAttention& call, const OptionalIntArray* length);
void RequirePadding(const FusedInferAttention& call, const OptionalIntArray& query_lengths,
                    const OptionalIntArray& key_lengths);
// Needs the sequences.
void RequirePositionShift(const FusedInferAttention& call);
// The separate rotary parts, where there are any.
void RequireRope(const FusedInferAttention& call);
// Needs the sequences.
void RequireMask(const FusedInferAttention& call);
void RequireOutputs(const FusedInferAttention& call);

}  // namespace cann_sim::operators
