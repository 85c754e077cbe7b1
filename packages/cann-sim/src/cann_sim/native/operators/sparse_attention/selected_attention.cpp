#include "selected_attention.h"

#include <ATen/ops/index_select.h>

#include <string>
#include <vector>

#include "../attention/attention.h"
#include "../interface/validation.h"

namespace cann_sim::operators {

namespace {

constexpr int64_t kMostHeads = 128;
constexpr int64_t kAbsorbed = 2;

bool IsPowerOfTwo(int64_t number, int64_t most) { return number >= 1 && number <= most && (number & (number - 1)) == 0; }

}  // namespace

void RequireValue(const Int& attribute, std::initializer_list<int64_t> allowed) {
  std::string text;
  for (const int64_t value : allowed) {
    if (attribute == value) {
      return;
    }
    text += (text.empty() ? "" : " or ") + std::to_string(value);
  }
  RefuseArgument(attribute.name(), text, std::to_string(attribute));
}

void RequireGroupSize(const Int& size, int64_t most) {
  if (!IsPowerOfTwo(size, most)) {
    RefuseArgument(size.name(), "a power of two of at most " + std::to_string(most), std::to_string(size));
  }
}

void RequireAbsorbed(const Int& attention_mode) {
  if (attention_mode != kAbsorbed) {
    RefuseArgument(attention_mode.name(), "2 (absorbed latent attention)", std::to_string(attention_mode));
  }
}

void SelectedAttention::Require(const Tensor& query, int64_t query_dim) const {
  RequireDtype(query, kHalves);
  RequireContiguous(query);
  std::vector<int64_t> shape = query.sizes().vec();
  const int64_t heads = shape[shape.size() - 2];
  if (shape.back() != query_dim || !IsPowerOfTwo(heads, kMostHeads)) {
    RefuseArgument(query.name(), "a power of two of at most 128 heads of " + std::to_string(query_dim) + " dimensions",
                   Describe(shape));
  }
  shape.back() = kLatentDim;
  RequireSameDtype(output, query);
  RequireShape(output, shape);
  shape[shape.size() - 2] = 1;
  shape.back() = selection.size(-1);
  RequireDtype(selection, {c10::ScalarType::Int});
  RequireShape(selection, shape);
  if (!largest) {
    return;
  }
  const bool packed = rows.queries.layout == RowLayout::kPacked;
  for (const OptionalTensor* statistic : {&largest, &total}) {
    RequireDtype(**statistic, {c10::ScalarType::Float});
    RequireShape(**statistic, packed ? std::vector<int64_t>{1, query.size(0), heads}
                                     : std::vector<int64_t>{query.size(0), 1, query.size(1), heads});
  }
}

void SelectedAttention::RunSequence(size_t index, const RowSpan& own, const RowSpan& seen,
                                    const SequenceOperands& operands) const {
  // Statistics have their one head of keys before the rows.
  const auto statistics_of = [&](const OptionalTensor& tensor) {
    const bool packed = rows.queries.layout == RowLayout::kPacked;
    return tensor ? rows.queries.Of(at::Tensor(*tensor).squeeze(packed ? 0 : 1), index, own) : at::Tensor();
  };
  const at::Tensor selected = rows.queries.Of(selection, index, own);
  const at::Tensor outputs = rows.queries.Of(output, index, own);
  const at::Tensor own_largest = statistics_of(largest);
  const at::Tensor own_total = statistics_of(total);
  for (int64_t position = 0; position < own.length; ++position) {
    const at::Tensor chosen = SelectedKeys({selection.name(), group_size}, selected[position][0], seen.length,
                                           mask.Seen(position, own, seen));
    const AttentionResult result =
        Attend(operands.queries.narrow(0, position, 1), at::index_select(operands.keys, 0, chosen),
               at::index_select(operands.values, 0, chosen), scale, at::Tensor(), at::Tensor(), at::Tensor());
    outputs.narrow(0, position, 1).copy_(result.output);
    if (largest) {
      own_largest.narrow(0, position, 1).copy_(result.largest);
      own_total.narrow(0, position, 1).copy_(result.total);
    }
  }
}

void SelectedAttention::Run(const ReadOperands& operands) const {
  at::Tensor(output).zero_();
  if (largest) {
    at::Tensor(*largest).zero_();
    at::Tensor(*total).zero_();
  }
  rows.ForEachSequence([&](size_t index, const RowSpan& own, const RowSpan& seen) {
    RunSequence(index, own, seen, operands(index, own, seen));
  });
}

}  // namespace cann_sim::operators
