// The masks of the operations that attend over whole sequences.
#pragma once

#include "../operators/interface/argument.h"
#include "packed_sequences.h"

namespace cann_sim::atb_library {

enum class MaskForm {
  kNone,
  kNorm,                     // [queries, keys] or [batch, queries, keys]
  kAlibi,                    // [heads, queries, keys] or [batch, heads, queries, keys], added to the scores
  kCausal,                   // a small square represents the causal mask of any size, or nothing is given
  kAlibiCompress,            // [256, 256] and slopes by head, which are multiplied with the distance of query and key; causal
  kAlibiCompressSqrt,        // the same with the root of the distance
  kAlibiCompressLeftAlign,   // the same with the position of the key
};

struct AttentionMask {
  MaskForm form = MaskForm::kNone;
  operators::OptionalTensor mask;
  operators::OptionalTensor slopes;  // [heads], where `form` is one of ALiBi
  // Whether positions are counted from the ends of the sequences, as for queries after a cached prefix.
  bool aligned_at_end = false;

  // Refuses a mask whose shape or dtype the form has not; `batch` is the number of sequences.
  void Require(const operators::Tensor& query, int64_t heads, int64_t batch) const;
  // What changes the scores of one sequence. Fails if a small mask is not the expected one of its form.
  SequenceMask Of(const PackedSequence& sequence, size_t index) const;
};

}  // namespace cann_sim::atb_library
