#include "ragged_rows.h"

#include <string>

#include "validation.h"

namespace cann_sim::operators {

std::vector<int64_t> ReadIntegers(const Tensor& tensor) {
  const at::Tensor wide = at::Tensor(tensor).to(at::kLong).contiguous();
  return {wide.data_ptr<int64_t>(), wide.data_ptr<int64_t>() + wide.numel()};
}

void RaggedRows::Require(const char* lengths_name) const {
  if (!lengths) {
    if (layout != RowLayout::kBatched) {
      RefuseArgument(lengths_name, "a tensor, since the rows are packed or paged", "none");
    }
    return;
  }
  RequireDtype(*lengths, {c10::ScalarType::Int});
  RequireShape(*lengths, {batch});
}

std::vector<RowSpan> RaggedRows::Read() const {
  if (!lengths) {
    return std::vector<RowSpan>(static_cast<size_t>(batch), {0, capacity});
  }
  std::vector<RowSpan> spans;
  int64_t before = 0;
  for (const int64_t value : ReadIntegers(*lengths)) {
    const int64_t start = layout == RowLayout::kPacked ? before : 0;
    const int64_t length = value - start;
    if (length < 0 || length > capacity - start) {
      RefuseArgument(lengths.name(),
                     "entry " + std::to_string(spans.size()) + " in [" + std::to_string(start) + ", " +
                         std::to_string(capacity) + "]",
                     std::to_string(value));
    }
    spans.push_back({start, length});
    before = value;
  }
  return spans;
}

at::Tensor RaggedRows::Of(const at::Tensor& tensor, size_t index, const RowSpan& span) const {
  const at::Tensor entry = layout == RowLayout::kPacked ? tensor : tensor.select(0, static_cast<int64_t>(index));
  return entry.narrow(0, span.start, span.length);
}

}  // namespace cann_sim::operators
