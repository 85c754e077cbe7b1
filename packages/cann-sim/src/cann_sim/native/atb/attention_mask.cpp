#include "attention_mask.h"

#include <ATen/ops/arange.h>

#include <cmath>

#include "../operators/interface/validation.h"

namespace cann_sim::atb_library {

namespace {

using operators::Describe;
using operators::RefuseArgument;

// Of op-plugin's tests: masks of bfloat16 hold 1 where a key is hidden, and the kernel multiplies them with this.
constexpr double kHiddenInBfloat16 = -3e38;
constexpr int64_t kSmallAlibiMask = 256;

bool HasSlopes(MaskForm form) { return form >= MaskForm::kAlibiCompress; }

double ExpectedOf(MaskForm form, int64_t query, int64_t key) {
  const auto distance = static_cast<double>(query - key);
  switch (form) {
    case MaskForm::kAlibiCompress: return distance;
    case MaskForm::kAlibiCompressSqrt: return std::sqrt(distance);
    default: return static_cast<double>(key);
  }
}

// The kernel extends the pattern of the small mask, so one with another pattern means something that is not simulated.
void RequirePattern(MaskForm form, const operators::OptionalTensor& mask) {
  const at::Tensor small = at::Tensor(*mask).to(at::kFloat);
  const bool hides_ahead = small.select(-2, 0).select(-1, 1).abs().min().item<double>() > 0;
  bool fits = hides_ahead;
  if (HasSlopes(form)) {
    for (const auto& [query, key] : {std::pair<int64_t, int64_t>{1, 0}, {5, 3}, {9, 0}}) {
      const double found = small[query][key].item<double>();
      fits = fits && std::abs(found - ExpectedOf(form, query, key)) <= 0.01 * (1 + std::abs(found));
    }
  }
  if (!fits) {
    throw operators::Refusal(std::string("argument '") + mask.name() +
                             "': expected the pattern that the mask type stands for, hidden above the diagonal, found another");
  }
}

}  // namespace

void AttentionMask::Require(const operators::Tensor& query, int64_t heads, int64_t batch) const {
  if (form == MaskForm::kNone || (form == MaskForm::kCausal && !mask)) {
    return;
  }
  if (!mask) {
    RefuseArgument(mask.name(), "a mask for this mask type", "none");
  }
  operators::RequireSameDtype(*mask, query);
  const c10::IntArrayRef sizes = mask->sizes();
  if (form == MaskForm::kNorm) {
    if (sizes.size() != 2 && !(sizes.size() == 3 && (sizes[0] == batch || sizes[0] == 1))) {
      RefuseArgument(mask.name(), "[queries, keys] or [batch, queries, keys]", Describe(sizes));
    }
    return;
  }
  if (form == MaskForm::kAlibi) {
    if (!(sizes.size() == 3 && sizes[0] == heads) && !(sizes.size() == 4 && sizes[0] == batch && sizes[1] == heads)) {
      RefuseArgument(mask.name(), "[heads, queries, keys] or [batch, heads, queries, keys]", Describe(sizes));
    }
    return;
  }
  const bool square = sizes.size() >= 2 && sizes[sizes.size() - 1] == sizes[sizes.size() - 2];
  if (form == MaskForm::kCausal) {
    if (!square || sizes[sizes.size() - 1] < 2) {
      RefuseArgument(mask.name(), "a square that stands for the causal mask", Describe(sizes));
    }
    return;
  }
  if (!square || sizes.size() != 2 || sizes[0] != kSmallAlibiMask) {
    RefuseArgument(mask.name(), "[256, 256] (a mask by heads is not simulated)", Describe(sizes));
  }
  if (!slopes || slopes->numel() != heads) {
    RefuseArgument(slopes.name(), std::to_string(heads) + " slopes", slopes ? Describe(slopes->sizes()) : "none");
  }
}

SequenceMask AttentionMask::Of(const PackedSequence& sequence, size_t index) const {
  SequenceMask result;
  if (form == MaskForm::kNone || sequence.key_length == 0) {
    return result;
  }
  if (form == MaskForm::kNorm || form == MaskForm::kAlibi) {
    at::Tensor whole = at::Tensor(*mask).to(at::kFloat);
    if (whole.dim() == (form == MaskForm::kNorm ? 3 : 4)) {
      whole = whole.select(0, whole.size(0) == 1 ? 0 : static_cast<int64_t>(index));
    }
    result.bias = whole.narrow(-2, 0, sequence.query_length).narrow(-1, 0, sequence.key_length);
    if (form == MaskForm::kNorm && mask->dtype() == c10::ScalarType::BFloat16) {
      result.bias = result.bias.mul(kHiddenInBfloat16);
    }
    return result;
  }
  if (mask) {
    RequirePattern(form, mask);
  }
  const int64_t shift = aligned_at_end ? sequence.key_length - sequence.query_length : 0;
  result.hidden = operators::HiddenKeys({shift, int64_t{0}, std::nullopt}, sequence.query_length, sequence.key_length);
  if (HasSlopes(form)) {
    const at::Tensor keys = at::arange(sequence.key_length, at::kFloat).unsqueeze(0);
    const at::Tensor queries = at::arange(sequence.query_length, at::kFloat).add_(shift).unsqueeze(1);
    at::Tensor pattern = form == MaskForm::kAlibiCompressLeftAlign ? keys : queries.sub(keys).clamp_min_(0);
    pattern = form == MaskForm::kAlibiCompressSqrt ? pattern.sqrt() : pattern;
    result.bias = at::Tensor(*slopes).to(at::kFloat).view({-1, 1, 1}).mul(pattern);
  }
  return result;
}

}  // namespace cann_sim::atb_library
