// Ring attention of MLA in prefill: one part of the keys at a time, merged with the result of the parts before.

#include <ATen/ops/cat.h>
#include <ATen/ops/logaddexp.h>

#include "attention_mask.h"
#include "operation.h"

namespace cann_sim::atb_library {

using operators::Describe;
using operators::Float;
using operators::Int;
using operators::Int32;
using operators::OptionalTensor;
using operators::RefuseArgument;
using operators::Tensor;

namespace {

constexpr int32_t kMergesBefore = 0;
constexpr int32_t kCausalMask = 1;

// Lengths are [2, batch], queries before keys, or [batch] where they are equal.
std::vector<PackedSequence> Sequences(const Tensor& seqlen, int64_t rows) {
  operators::RequireRank(seqlen, 1, 2);
  const std::vector<int64_t> lengths = HostValues(seqlen);
  if (seqlen.rank() == 1) {
    return PackSequences(lengths, lengths, rows, seqlen.name(), seqlen.name());
  }
  if (seqlen.size(0) != 2) {
    RefuseArgument(seqlen.name(), "[batch] or [2, batch]", Describe(seqlen.sizes()));
  }
  const auto middle = lengths.begin() + seqlen.size(1);
  return PackSequences({lengths.begin(), middle}, {middle, lengths.end()}, rows, seqlen.name(), seqlen.name());
}

}  // namespace

CANN_SIM_ATB_FUNCTION(AtbRingMLA, (Tensor, q_nope), (Tensor, q_rope), (Tensor, k_nope), (Tensor, k_rope), (Tensor, value),
                      (OptionalTensor, mask), (Tensor, seqlen), (OptionalTensor, pre_out), (OptionalTensor, prev_lse),
                      (Int, head_num), (Int, kv_head_num), (Float, qk_scale), (Int32, kernel_type), (Int32, mask_type),
                      (Int32, input_layout), (Int32, calc_type), (Tensor, output), (Tensor, softmax_lse)) {
  RequireHeads(head_num, kv_head_num);
  for (const Tensor* rows : {&q_nope, &q_rope, &k_nope, &k_rope, &value}) {
    const bool is_query = rows == &q_nope || rows == &q_rope;
    RequirePackedRows(*rows, is_query ? head_num : kv_head_num);
    operators::RequireSameDtype(*rows, q_nope);
    const int64_t expected = is_query ? q_nope.size(0) : k_nope.size(0);
    if (rows->size(0) != expected) {
      RefuseArgument(rows->name(), std::to_string(expected) + " rows", Describe(rows->sizes()));
    }
  }
  const std::pair<const Tensor*, const Tensor*> parts[] = {{&k_nope, &q_nope}, {&k_rope, &q_rope}};
  for (const auto& [keys, queries] : parts) {
    if (HeadDim(*keys, kv_head_num) != HeadDim(*queries, head_num)) {
      RefuseArgument(keys->name(), "heads as those of '" + std::string(queries->name()) + "'", Describe(keys->sizes()));
    }
  }
  const auto sequences = Sequences(seqlen, q_nope.size(0));
  int64_t keys_in_all = 0;
  for (const PackedSequence& sequence : sequences) {
    keys_in_all += sequence.key_length;
  }
  if (keys_in_all > k_nope.size(0)) {
    RefuseArgument(seqlen.name(), "at most " + std::to_string(k_nope.size(0)) + " keys in sum", std::to_string(keys_in_all));
  }
  AttentionMask own_mask;
  if (mask_type == kCausalMask) {
    own_mask = {MaskForm::kCausal, mask, OptionalTensor(), false};
    if (!mask) {
      RefuseArgument(mask.name(), "a mask for mask_type_triu", "none");
    }
    own_mask.Require(q_nope, head_num, static_cast<int64_t>(sequences.size()));
  }
  const std::vector<int64_t> lse_shape{head_num, q_nope.size(0)};
  const int64_t value_dims = HeadDim(value, kv_head_num);
  operators::RequireSameDtype(output, q_nope);
  operators::RequireShape(output, {q_nope.size(0), head_num, value_dims});
  operators::RequireDtype(softmax_lse, {c10::ScalarType::Float});
  operators::RequireShape(softmax_lse, lse_shape);
  const bool merges = calc_type == kMergesBefore;
  if (merges) {
    if (!pre_out || !prev_lse) {
      RefuseArgument(pre_out ? prev_lse.name() : pre_out.name(), "the result before, for calc_type_default", "none");
    }
    operators::RequireSameDtype(*pre_out, output);
    operators::RequireShape(*pre_out, output.sizes());
    operators::RequireDtype(*prev_lse, {c10::ScalarType::Float});
    operators::RequireShape(*prev_lse, lse_shape);
  }
  return [=] {
    std::vector<int64_t> starts(1, 0);
    for (const PackedSequence& sequence : sequences) {
      starts.push_back(starts.back() + sequence.key_length);
    }
    const auto queries = [&](const Tensor& tensor, size_t index) {
      return PackedRows(tensor, head_num, sequences[index].query_start, sequences[index].query_length);
    };
    const auto keys = [&](const Tensor& tensor, size_t index) {
      return PackedRows(tensor, kv_head_num, starts[index], sequences[index].key_length);
    };
    AttendSequences(
        sequences, qk_scale, [&](size_t index) { return at::cat({queries(q_nope, index), queries(q_rope, index)}, -1); },
        [&](size_t index) { return at::cat({keys(k_nope, index), keys(k_rope, index)}, -1); },
        [&](size_t index) { return keys(value, index); },
        [&](size_t index) { return own_mask.Of(sequences[index], index); },
        [&](size_t index, const operators::AttentionResult& result) {
          const PackedSequence& own = sequences[index];
          const auto columns = [&](const Tensor& tensor) {
            return at::Tensor(tensor).narrow(1, own.query_start, own.query_length);
          };
          at::Tensor rows = result.output;
          at::Tensor logarithms = result.log_sum_exp.transpose(0, 1);
          if (own.key_length == 0) {
            logarithms = logarithms.new_zeros(logarithms.sizes());
          }
          if (merges && own.key_length == 0) {
            rows = queries(*pre_out, index);
            logarithms = columns(*prev_lse);
          } else if (merges) {
            const at::Tensor before = columns(*prev_lse);
            const at::Tensor together = at::logaddexp(before, logarithms);
            const auto weight = [&](const at::Tensor& part) { return part.sub(together).exp().transpose(0, 1).unsqueeze(-1); };
            rows = rows.mul(weight(logarithms)).add(queries(*pre_out, index).mul(weight(before)));
            logarithms = together;
          }
          at::Tensor(output).narrow(0, own.query_start, own.query_length).copy_(rows);
          columns(softmax_lse).copy_(logarithms);
        });
  };
}

}  // namespace cann_sim::atb_library
