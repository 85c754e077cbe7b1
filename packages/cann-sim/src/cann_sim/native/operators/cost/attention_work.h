// What an attention kernel does, by its lengths.
#pragma once

#include <cstdint>

#include "../../runtime/launch.h"

namespace cann_sim::operators {

// The heads of an attention, with what a query, a key and a value of one head have.
struct AttentionHeads {
  int64_t heads;
  int64_t kv_heads;
  int64_t query_dims;        // of the scores, rotary parts included
  int64_t value_dims;
  double query_item;         // bytes of an element
  double cached_bytes;       // of the key and the value of one position and head; once if values are part of the keys
  bool is_causal = false;    // aligned to the last key
};

// Sequences have a query_length and a key_length. Keys and values come from the memory of the device, queries and the output
// from its level 2 cache. Of a causal attention the half that is hidden is not computed.
template <class Sequences>
Work WorkOfAttention(const AttentionHeads& of, const Sequences& sequences) {
  // A score is scaled, compared, subtracted, exponentiated (some three steps), summed and rounded.
  constexpr double kVectorOperationsOfScore = 8;
  double queries = 0;
  double keys = 0;
  double scores = 0;
  for (const auto& sequence : sequences) {
    const auto own_queries = static_cast<double>(sequence.query_length);
    const auto own_keys = static_cast<double>(sequence.key_length);
    queries += own_queries;
    keys += own_queries > 0 ? own_keys : 0;
    scores += own_queries * own_keys;
    if (of.is_causal && own_keys >= own_queries) {
      scores -= own_queries * (own_queries - 1) / 2;
    }
  }
  const auto heads = static_cast<double>(of.heads);
  const auto dims = static_cast<double>(of.query_dims + of.value_dims);
  return {.bytes = heads * queries * dims * of.query_item,
          .streamed_bytes = static_cast<double>(of.kv_heads) * keys * of.cached_bytes,
          .cube_operations = 2 * heads * scores * dims,
          .vector_operations = heads * scores * kVectorOperationsOfScore};
}

}  // namespace cann_sim::operators
