// TopKTopPSample: each row keeps its k largest logits, of those the ones that make up the probability p, of those the ones above a
// share of the largest, and gives the largest of them, divided by a sample where there is one. Computed in float32.

#include <ATen/ops/arange.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/div.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/softmax.h>

#include <algorithm>
#include <limits>
#include <memory>

#include "../interface/operator.h"

namespace cann_sim::operators {

namespace {

using c10::ScalarType;

constexpr int64_t kLargestK = 1024;
constexpr int64_t kLargestVocabulary = int64_t{1} << 20;

// One call; owned by its kernel.
struct TopKTopPSample {
  Tensor logits, top_k, top_p;
  OptionalTensor sample, min_p;
  double epsilon;
  bool wants_logits;
  int64_t largest_k;
  bool takes_logits;   // false where the rows are probabilities already
  bool wants_kept;     // what is kept, in place of a choice
  Tensor chosen;
  OptionalTensor kept_logits, kept_places, kept_values;

  void Require() const;
  void Run() const;

 private:
  // What is left of a row, and where it was.
  struct Kept {
    at::Tensor values, places;
  };
  Kept Filter(const at::Tensor& row, int64_t k, double p, double least) const;
};

void TopKTopPSample::Require() const {
  RequireDtype(logits, kFloats);
  RequireRank(logits, 2, 2);
  const int64_t rows = logits.size(0);
  if (rows < 1 || logits.size(1) < 1 || logits.size(1) > kLargestVocabulary) {
    RefuseArgument(logits.name(), "[rows, 1 to 1048576]", Describe(logits.sizes()));
  }
  RequireDtype(top_k, {ScalarType::Int});
  RequireShape(top_k, {rows});
  RequireSameDtype(top_p, logits);
  RequireShape(top_p, {rows});
  if (sample) {
    RequireDtype(*sample, {ScalarType::Float});
    RequireShape(*sample, logits.sizes());
  }
  if (min_p) {
    RequireSameDtype(*min_p, logits);
    RequireShape(*min_p, {rows});
  }
  if (largest_k < 1 || largest_k > kLargestK) {
    RefuseArgument("ksMax", "1 to 1024", std::to_string(largest_k));
  }
  if (wants_kept && sample) {
    RefuseArgument(sample.name(), "none beside what is kept", "a tensor");
  }
  RequireDtype(chosen, {ScalarType::Long});
  if (wants_logits) {
    RequireDtype(*kept_logits, {ScalarType::Float});
    RequireShape(*kept_logits, logits.sizes());
  }
  if (wants_kept) {
    RequireShape(*kept_places, logits.sizes());
    RequireShape(*kept_values, logits.sizes());
  } else {
    RequireShape(chosen, {rows});
  }
}

TopKTopPSample::Kept TopKTopPSample::Filter(const at::Tensor& row, int64_t k, double p, double least) const {
  const int64_t size = row.size(0);
  const int64_t most = std::min({(largest_k + 7) / 8 * 8, kLargestK, size});
  const bool cuts_k = k >= 1 && k <= most;
  const bool cuts_p = p < 1.0;
  const auto probabilities = [&](const at::Tensor& values) { return takes_logits ? at::softmax(values, 0) : values; };
  Kept kept;
  if (!cuts_k && !cuts_p && least < 1.0) {
    kept = {probabilities(row), at::arange(size, at::kLong)};  // not sorted
  } else {
    const auto [values, places] = row.sort(true, 0, true);
    const int64_t count = cuts_k ? k : size;
    kept = {probabilities(values.narrow(0, 0, count)), places.narrow(0, 0, count)};
  }
  const auto select = [&](const at::Tensor& mask) {
    const at::Tensor numbers = mask.nonzero().view({-1});
    kept = {kept.values.index_select(0, numbers), kept.places.index_select(0, numbers)};
  };
  if (cuts_p && p > 0.0) {
    select(at::cumsum(kept.values, 0).sub(kept.values).lt(p));
  } else if (cuts_p) {
    kept = {takes_logits ? at::ones({1}, at::kFloat) : kept.values.narrow(0, 0, 1), kept.places.narrow(0, 0, 1)};
  }
  if (least >= 1.0) {
    kept = {kept.values.narrow(0, 0, 1), kept.places.narrow(0, 0, 1)};
  } else if (least > 0.0) {
    select(kept.values.ge(kept.values.max().mul(least)));
  }
  return kept;
}

void TopKTopPSample::Run() const {
  const at::Tensor wide = logits.Widened();
  const at::Tensor ks = at::Tensor(top_k).to(at::kLong);
  const at::Tensor ps = top_p.Widened();
  const at::Tensor shares = min_p ? min_p->Widened() : at::Tensor();
  if (wants_logits) {
    at::Tensor(*kept_logits).fill_(takes_logits ? -std::numeric_limits<double>::infinity() : 0.0);
  }
  if (wants_kept) {
    at::Tensor(*kept_places).zero_();
    at::Tensor(*kept_values).zero_();
  }
  for (int64_t row = 0; row < wide.size(0); ++row) {
    const Kept kept = Filter(wide[row], ks[row].item<int64_t>(), ps[row].item<double>(),
                             min_p ? shares[row].item<double>() : 0.0);
    const int64_t count = kept.values.size(0);
    if (wants_logits) {
      at::Tensor(*kept_logits)[row].index_copy_(0, kept.places, wide[row].index_select(0, kept.places));
    }
    if (wants_kept) {
      at::Tensor(*kept_places)[row].narrow(0, 0, count).copy_(kept.places);
      at::Tensor(*kept_values)[row].narrow(0, 0, count).copy_(kept.values);
      continue;
    }
    at::Tensor values = kept.values;
    if (sample) {
      values = at::div(values, sample->Widened()[row].narrow(0, 0, count).abs().add(epsilon));
    }
    at::Tensor(chosen).narrow(0, row, 1).copy_(kept.places.narrow(0, at::argmax(values).item<int64_t>(), 1));
  }
}

Plan MakePlan(const TopKTopPSample& given) {
  given.Require();
  const auto call = std::make_shared<TopKTopPSample>(given);
  return Plan([call] { call->Run(); });
}

}  // namespace

// topKGuess is how many values the device sorts at first; it changes no result.
CANN_SIM_OPERATOR(aclnnTopKTopPSample, (Tensor, logits), (Tensor, topK), (Tensor, topP), (OptionalTensor, q), (Double, eps),
                  (Bool, isNeedLogits), (Int, topKGuess), (Tensor, logitsSelectIdx), (Tensor, logitsTopKPSelect)) {
  const OptionalTensor none;
  return MakePlan({logits, topK, topP, q, none, eps, isNeedLogits, kLargestK, true, false, logitsSelectIdx, logitsTopKPSelect,
                   none, none});
}

CANN_SIM_OPERATOR(aclnnTopKTopPSampleV2, (Tensor, logits), (Tensor, topK), (Tensor, topP), (OptionalTensor, q),
                  (OptionalTensor, minPs), (Double, eps), (Bool, isNeedLogits), (Int, topKGuess), (Int, ksMax),
                  (Bool, inputIsLogits), (Bool, isNeedSampleResult), (Tensor, logitsSelectIdx), (Tensor, logitsTopKPSelect),
                  (Tensor, logitsIdx), (Tensor, logitsSortMasked)) {
  return MakePlan({logits, topK, topP, q, minPs, eps, isNeedLogits, ksMax, inputIsLogits, isNeedSampleResult, logitsSelectIdx,
                   logitsTopKPSelect, logitsIdx, logitsSortMasked});
}

}  // namespace cann_sim::operators
