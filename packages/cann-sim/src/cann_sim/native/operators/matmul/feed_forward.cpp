// Feed-forward layers: two matrix products with an activation between them, for all rows or for the rows of each expert.

#include <ATen/ops/chunk.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cctype>
#include <memory>
#include <string>

#include "../interface/operator.h"
#include "../quantization/quantization.h"

namespace cann_sim::operators {

namespace {

using c10::ScalarType;

constexpr int64_t kMostFeedForwardExperts = 256;

using PlainActivation = at::Tensor (*)(const at::Tensor&);

struct NamedActivation {
  const char* name;
  PlainActivation function;
  // Whether the first half of the columns goes through the function and is multiplied with the second.
  bool gates;
};

at::Tensor TanhGelu(const at::Tensor& x) { return at::gelu(x, "tanh"); }
at::Tensor FasterGelu(const at::Tensor& x) { return x.mul(at::sigmoid(x.mul(1.702))); }

constexpr NamedActivation kActivations[] = {{"fastgelu", FasterGelu, false}, {"gelu", TanhGelu, false},
                                            {"relu", at::relu, false},       {"silu", at::silu, false},
                                            {"geglu", TanhGelu, true},       {"swiglu", at::silu, true},
                                            {"reglu", at::relu, true}};

struct Layer {
  Tensor weight;
  OptionalTensor bias, dequantize, antiquant_scale, antiquant_offset;
};

struct FeedForward {
  Tensor x;
  Layer first, second;
  OptionalTensor scale, offset;
  std::vector<int64_t> rows_by_expert;  // empty where there are no experts
  bool experts;
  bool fast;
  NamedActivation activation;
  Tensor y;

  bool quantized() const { return x.dtype() == ScalarType::Char; }
  void Require() const;
  void Run() const;

 private:
  void RequireLayer(const Layer& layer, int64_t inputs, const char* number) const;
  void RequirePlainLayer(const Layer& layer) const;
  at::Tensor Product(const at::Tensor& rows, const Layer& layer, int64_t expert) const;
  at::Tensor Between(const at::Tensor& rows, int64_t expert) const;
};

NamedActivation ActivationOf(const Text& name) {
  std::string lower = name.value();
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  std::string known;
  for (const NamedActivation& candidate : kActivations) {
    if (lower == candidate.name) {
      return candidate;
    }
    known += std::string(known.empty() ? "" : ", ") + candidate.name;
  }
  RefuseArgument(name.name(), "one of " + known, name.value());
}

void RequireNone(const OptionalTensor& tensor, const char* kind) {
  if (tensor && tensor->numel() != 0) {
    RefuseArgument(tensor.name(), std::string("none ") + kind, "a tensor");
  }
}

void RequirePresent(const OptionalTensor& tensor, const char* kind) {
  if (!tensor) {
    RefuseArgument(tensor.name(), std::string("a tensor ") + kind, "none");
  }
}

void FeedForward::RequirePlainLayer(const Layer& layer) const {
  constexpr const char* kKind = "where the weights have the dtype of 'x'";
  RequireSameDtype(layer.weight, x);
  RequireNone(layer.dequantize, kKind);
  RequireNone(layer.antiquant_scale, kKind);
  RequireNone(layer.antiquant_offset, kKind);
}

void FeedForward::RequireLayer(const Layer& layer, int64_t inputs, const char* number) const {
  const int rank = experts ? 3 : 2;
  RequireRank(layer.weight, rank, rank);
  if (layer.weight.size(-2) != inputs || (experts && layer.weight.size(0) != static_cast<int64_t>(rows_by_expert.size()))) {
    RefuseArgument(layer.weight.name(), std::string("a matrix of ") + std::to_string(inputs) + " rows" + (experts ? " an expert" : ""),
                   Describe(layer.weight.sizes()));
  }
  std::vector<int64_t> columns = layer.weight.sizes().vec();
  columns.erase(columns.end() - 2);
  for (const OptionalTensor& tensor : {layer.bias, layer.dequantize, layer.antiquant_scale, layer.antiquant_offset}) {
    if (tensor) {
      RequireShape(*tensor, columns);
    }
  }
  if (quantized()) {
    RequireDtype(layer.weight, {ScalarType::Char});
    RequirePresent(layer.dequantize, "where 'x' is int8");
    RequireDtype(*layer.dequantize, y.dtype() == ScalarType::BFloat16
                                        ? DtypeSet{ScalarType::BFloat16}
                                        : DtypeSet{ScalarType::Long, ScalarType::UInt64, ScalarType::Float});
    RequireNone(layer.antiquant_scale, "where 'x' is int8");
    RequireNone(layer.antiquant_offset, "where 'x' is int8");
  } else if (layer.weight.dtype() == ScalarType::Char) {
    for (const OptionalTensor& tensor : {layer.antiquant_scale, layer.antiquant_offset}) {
      RequirePresent(tensor, (std::string("where weight") + number + " is int8").c_str());
      RequireSameDtype(*tensor, x);
    }
    RequireNone(layer.dequantize, "where 'x' is not int8");
  } else {
    RequirePlainLayer(layer);
  }
  if (layer.bias) {
    RequireDtype(*layer.bias, quantized()                            ? DtypeSet{ScalarType::Int}
                              : x.dtype() == ScalarType::BFloat16 ? DtypeSet{ScalarType::Float}
                                                                     : DtypeSet{ScalarType::Half});
  }
}

void FeedForward::Require() const {
  RequireDtype(x, kHalves | DtypeSet{ScalarType::Char});
  RequireRank(x, 2, 8);
  RequireLayer(first, x.size(-1), "1");
  const int64_t width = first.weight.size(-1);
  if (activation.gates && (width % 2 != 0 || experts || x.dtype() != ScalarType::Half || first.weight.dtype() != x.dtype())) {
    RefuseArgument("activation", "gelu, fastgelu, relu or silu but for float16 without experts and an even number of columns",
                   activation.name);
  }
  RequireLayer(second, activation.gates ? width / 2 : width, "2");
  if (second.weight.dtype() != first.weight.dtype()) {
    RequireSameDtype(second.weight, first.weight);
  }
  if (quantized()) {
    RequireDtype(y, kHalves);
    RequirePresent(scale, "where 'x' is int8");
    RequirePresent(offset, "where 'x' is int8");
    const int64_t count = experts ? static_cast<int64_t>(rows_by_expert.size()) : 1;
    RequireDtype(*scale, {ScalarType::Float});
    RequireDtype(*offset, {ScalarType::Float});
    if (scale->numel() != count && scale->numel() != count * width) {
      RefuseArgument(scale->name(), "one value, or one a column, of each expert", Describe(scale->sizes()));
    }
    if (offset->numel() != count) {
      RefuseArgument(offset->name(), "one value of each expert", Describe(offset->sizes()));
    }
  } else {
    RequireSameDtype(y, x);
    RequireNone(scale, "where 'x' is not int8");
    RequireNone(offset, "where 'x' is not int8");
  }
  std::vector<int64_t> expected = x.sizes().vec();
  expected.back() = second.weight.size(-1);
  RequireShape(y, expected);
  if (second.weight.size(-1) != x.size(-1)) {
    RefuseArgument(second.weight.name(), "as many columns as 'x' has, " + std::to_string(x.size(-1)),
                   Describe(second.weight.sizes()));
  }
}

at::Tensor OfExpert(const OptionalTensor& tensor, int64_t expert, int rank) {
  const at::Tensor whole = at::Tensor(tensor);
  return whole.dim() > rank || (rank == 0 && whole.numel() > 1) ? whole.select(0, expert) : whole;
}

at::Tensor FeedForward::Product(const at::Tensor& rows, const Layer& layer, int64_t expert) const {
  const at::Tensor weight = OfExpert(layer.weight, expert, 2);
  if (quantized()) {
    at::Tensor product = at::matmul(rows.to(at::kDouble), weight.to(at::kDouble));
    if (layer.bias) {
      product.add_(OfExpert(layer.bias, expert, 1));
    }
    const at::Tensor scales = WidenScale(*layer.dequantize);
    return product.mul_(scales.dim() > 1 ? scales.select(0, expert) : scales).to(y.dtype()).to(at::kFloat);
  }
  at::Tensor wide = weight.to(at::kFloat);
  if (layer.antiquant_scale) {
    // The matrix unit takes the weights in the dtype of `x`. float16 is shifted and scaled in float16, bfloat16 in float32.
    const ScalarType type = x.dtype() == ScalarType::Half ? ScalarType::Half : ScalarType::Float;
    wide = wide.to(type).add(OfExpert(layer.antiquant_offset, expert, 1).to(type));
    wide = wide.mul(OfExpert(layer.antiquant_scale, expert, 1).to(type)).to(x.dtype()).to(at::kFloat);
  }
  const at::Tensor product = at::matmul(rows, wide);
  return layer.bias ? product.add(OfExpert(layer.bias, expert, 1)) : product;
}

// Activates, and rounds as the second product takes its rows.
at::Tensor FeedForward::Between(const at::Tensor& rows, int64_t expert) const {
  // The fast form of float16, and the one with integer weights, leave the product in float16.
  const bool rounds = x.dtype() == ScalarType::Half && (fast || first.antiquant_scale);
  const at::Tensor product = rounds ? rows.to(at::kHalf).to(at::kFloat) : rows;
  at::Tensor active;
  if (activation.gates) {
    const std::vector<at::Tensor> halves = at::chunk(product, 2, -1);
    active = activation.function(halves[0]).mul(halves[1]);
  } else {
    active = activation.function(product);
  }
  if (!quantized()) {
    return active.to(x.dtype()).to(at::kFloat);
  }
  // As above: float16 results are quantised in float16, bfloat16 results in float32.
  const ScalarType type = y.dtype() == ScalarType::Half ? ScalarType::Half : ScalarType::Float;
  const auto own = [&](const OptionalTensor& tensor) {
    const at::Tensor whole = at::Tensor(tensor);
    const at::Tensor value = experts ? whole.flatten(0, 0).select(0, expert) : whole;
    return value.to(type);
  };
  return active.to(type).mul(own(scale)).add(own(offset)).to(at::kFloat).round().clamp(-128, 127);
}

void FeedForward::Run() const {
  const at::Tensor rows = x.Widened().flatten(0, -2);
  const at::Tensor results = at::zeros({rows.size(0), y.size(-1)}, at::kFloat);
  int64_t begin = 0;
  const auto run = [&](int64_t expert, int64_t count) {
    if (count > 0) {
      const at::Tensor between = Between(Product(rows.narrow(0, begin, count), first, expert), expert);
      results.narrow(0, begin, count).copy_(Product(between, second, expert));
    }
    begin += count;
  };
  if (!experts) {
    run(0, rows.size(0));
  }
  for (size_t expert = 0; expert < rows_by_expert.size(); ++expert) {
    run(static_cast<int64_t>(expert), rows_by_expert[expert]);
  }
  y.Store(results.view(y.sizes()));
}

// Rows of each expert, from their numbers or from where each expert's rows end.
std::vector<int64_t> RowsByExpert(const OptionalIntArray& tokens, bool ends, int64_t rows) {
  std::vector<int64_t> counts = tokens.values();
  if (counts.size() > kMostFeedForwardExperts) {
    RefuseArgument(tokens.name(), "at most 256 experts", std::to_string(counts.size()));
  }
  if (ends) {
    for (size_t index = counts.size(); index-- > 1;) {
      counts[index] -= counts[index - 1];
    }
  }
  int64_t total = 0;
  for (int64_t count : counts) {
    if (count < 0) {
      RefuseArgument(tokens.name(), "numbers of rows that are not negative", Describe(tokens.values()));
    }
    total += count;
  }
  if (!counts.empty() && total != rows) {
    RefuseArgument(tokens.name(), "all " + std::to_string(rows) + " rows of 'x'", std::to_string(total));
  }
  return counts;
}

}  // namespace

// innerPrecise: 0 is the precise form of float16, 1 the fast one.
CANN_SIM_OPERATOR(aclnnFFNV2, (Tensor, x), (Tensor, weight1), (Tensor, weight2), (OptionalIntArray, expertTokens),
                  (OptionalTensor, bias1), (OptionalTensor, bias2), (OptionalTensor, scale), (OptionalTensor, offset),
                  (OptionalTensor, deqScale1), (OptionalTensor, deqScale2), (OptionalTensor, antiquantScale1),
                  (OptionalTensor, antiquantScale2), (OptionalTensor, antiquantOffset1), (OptionalTensor, antiquantOffset2),
                  (Text, activation), (Int, innerPrecise), (Bool, tokensIndexFlag), (Tensor, y)) {
  if (innerPrecise != 0 && innerPrecise != 1) {
    RefuseArgument(innerPrecise.name(), "0 or 1", std::to_string(innerPrecise));
  }
  RequireRank(x, 2, 8);
  const int64_t rows = x.size(-1) == 0 ? 0 : x.numel() / x.size(-1);
  const std::vector<int64_t> counts = RowsByExpert(expertTokens, tokensIndexFlag, rows);
  auto call = std::make_shared<FeedForward>(FeedForward{x,
                                                        {weight1, bias1, deqScale1, antiquantScale1, antiquantOffset1},
                                                        {weight2, bias2, deqScale2, antiquantScale2, antiquantOffset2},
                                                        scale,
                                                        offset,
                                                        counts,
                                                        !counts.empty(),
                                                        innerPrecise == 1,
                                                        ActivationOf(activation),
                                                        y});
  call->Require();
  return [call] { call->Run(); };
}

}  // namespace cann_sim::operators
