// A grouped product of quantised matrices, SwiGLU of its rows, and their quantisation, in one operator.

#include <ATen/ops/add.h>
#include <ATen/ops/chunk.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/silu.h>

#include <memory>

#include "../interface/operator.h"
#include "../quantization/quantization.h"
#include "quantized_grouped_matmul.h"

namespace cann_sim::operators {

namespace {

using c10::ScalarType;

// A block of the NZ format in int8; in int4 it has twice the columns, eight in an int32.
constexpr int64_t kBlockRows = 16;
constexpr int64_t kBlockColumns = 32;

// One call; owned by its kernel.
struct GroupedSwiGluQuant {
  Tensor x;
  OptionalTensorList weight, weight_scale, assist;
  Tensor x_scale;
  OptionalTensor smooth_scale;
  Tensor group_list;
  int64_t group_list_type, dequant_mode;
  Tensor y, y_scale;

  void Require() const;
  void Run() const;

 private:
  bool four_bits() const { return weight[0].dtype() == ScalarType::Int; }
  // Whether the rows are int4 as well, eight in an int32.
  bool four_bit_rows() const { return x.dtype() == ScalarType::Int; }
  // Whether the weights are given as the blocks of the NZ format, [E, N / C0, K / 16, 16, C0].
  bool blocked() const { return weight.size() == 1 && weight[0].rank() == 5; }
  bool transposed() const { return !blocked() && IsTransposedMatrix(weight[0]); }
  int64_t groups() const { return weight.size() > 1 ? static_cast<int64_t>(weight.size()) : weight[0].size(0); }
  int64_t inner() const {
    const int64_t stored = blocked() ? weight[0].size(2) * weight[0].size(3) : weight[0].size(-2);
    return stored * (four_bits() && transposed() ? kInt4PerInt32 : 1);
  }
  int64_t columns() const {
    const int64_t stored = weight[0].size(-1) * (blocked() ? weight[0].size(1) : 1);
    return stored * (four_bits() && !transposed() ? kInt4PerInt32 : 1);
  }
  at::Tensor WeightOf(int64_t group) const;
  at::Tensor Product(const at::Tensor& rows, int64_t group) const;
};

void GroupedSwiGluQuant::Require() const {
  RequireDtype(x, kQuantized);
  RequireRank(x, 2, 2);
  if (!weight || !weight_scale) {
    RefuseArgument(weight ? weight_scale.name() : weight.name(), "at least one tensor", "none");
  }
  RequireDtype(weight[0], {ScalarType::Char, ScalarType::Int});
  if (blocked()) {
    const std::vector<int64_t> block = {kBlockRows, four_bits() ? kBlockColumns / 4 : kBlockColumns};
    if (weight[0].sizes().slice(3) != c10::IntArrayRef(block)) {
      RefuseArgument(weight.name(), "blocks of " + Describe(block), Describe(weight[0].sizes()));
    }
  } else {
    RequireRank(weight[0], weight.size() > 1 ? 2 : 3, weight.size() > 1 ? 2 : 3);
  }
  const int64_t width = x.size(1) * (four_bit_rows() ? kInt4PerInt32 : 1);
  if (inner() != width || columns() % 2 != 0) {
    RefuseArgument(weight.name(), std::to_string(width) + " rows and an even number of columns",
                   Describe(weight[0].sizes()));
  }
  if (four_bit_rows() && !four_bits()) {
    RefuseArgument(x.name(), "int8 beside an int8 'weight'", "int4 in int32");
  }
  RequireGroupList(group_list, group_list_type);
  if (group_list_type != 2 && group_list.size(0) != groups()) {
    RefuseArgument(group_list.name(), std::to_string(groups()) + " groups as 'weight'", Describe(group_list.sizes()));
  }
  RequireDtype(x_scale, {ScalarType::Float});
  if (x_scale.numel() != x.size(0)) {
    RefuseArgument(x_scale.name(), std::to_string(x.size(0)) + " elements", Describe(x_scale.sizes()));
  }
  for (const Tensor& scale : weight_scale) {
    RequireDtype(scale, four_bits() ? DtypeSet{ScalarType::Long, ScalarType::UInt64} : kFloats);
  }
  if ((four_bits() && !four_bit_rows()) != static_cast<bool>(assist)) {
    RefuseArgument(assist.name(), "a tensor beside an int8 'x' and an int4 'weight', and none else", assist ? "a tensor" : "none");
  }
  if (dequant_mode == 1 && (!assist || weight_scale[0].rank() != (weight.size() > 1 ? 2 : 3))) {
    RefuseArgument("dequantMode", "1 beside scales of pieces of an int4 'weight' only", "1");
  }
  if (smooth_scale) {
    if (!four_bit_rows()) {
      RefuseArgument(smooth_scale.name(), "none but beside an int4 'x'", "a tensor");
    }
    RequireDtype(*smooth_scale, {ScalarType::Float});
    if (smooth_scale->sizes() != c10::IntArrayRef({groups()})) {
      RequireShape(*smooth_scale, {groups(), columns() / 2});
    }
  }
  RequireDtype(y, {ScalarType::Char});
  RequireShape(y, {x.size(0), columns() / 2});
  RequireDtype(y_scale, {ScalarType::Float});
  RequireShape(y_scale, {x.size(0)});
}

at::Tensor GroupedSwiGluQuant::WeightOf(int64_t group) const {
  if (weight.size() > 1) {
    return weight[static_cast<size_t>(group)];
  }
  const at::Tensor own = at::Tensor(weight[0])[group];
  return blocked() ? own.permute({1, 2, 0, 3}).flatten(2, 3).flatten(0, 1) : own;
}

at::Tensor GroupedSwiGluQuant::Product(const at::Tensor& rows, int64_t group) const {
  const size_t own = weight.size() > 1 ? static_cast<size_t>(group) : 0;
  const at::Tensor matrix = ExactMatrix(WeightOf(group), transposed());
  const at::Tensor all = WidenScale(weight_scale[weight_scale.size() > 1 ? own : 0]);
  const at::Tensor scale = weight_scale.size() > 1 ? all : all[group];
  if (!assist) {
    return at::mul(at::matmul(ExactMatrix(rows, false), matrix).to(at::kFloat), scale);
  }
  // As GroupedMatmul: the lower half of a row is stored 8 less than it is, which `assist` puts back.
  const at::Tensor left = rows.to(at::kDouble).sub(8);
  const at::Tensor pieces = scale.dim() == 2 ? scale : scale.unsqueeze(0);
  const int64_t length = matrix.size(0) / pieces.size(0);
  at::Tensor sum = OfGroup(assist, group, 1).to(at::kFloat);
  for (int64_t piece = 0; piece < pieces.size(0); ++piece) {
    const at::Tensor part = at::matmul(left.narrow(1, piece * length, length), matrix.narrow(0, piece * length, length));
    sum = at::add(sum, at::mul(part.to(at::kFloat), pieces[piece]));
  }
  return sum;
}

void GroupedSwiGluQuant::Run() const {
  const at::Tensor rows = x;
  const at::Tensor factors = at::Tensor(x_scale).reshape({-1, 1});
  for (const GroupRange& range : GroupRanges(group_list, static_cast<GroupListType>(group_list_type), rows.size(0))) {
    const int64_t length = range.end - range.begin;
    if (length == 0) {
      continue;
    }
    if (range.group >= groups()) {
      throw Refusal("argument 'groupList': expected groups below " + std::to_string(groups()) + ", found " +
                    std::to_string(range.group));
    }
    const at::Tensor product =
        at::mul(Product(rows.narrow(0, range.begin, length), range.group), factors.narrow(0, range.begin, length));
    const std::vector<at::Tensor> halves = at::chunk(product, 2, -1);
    at::Tensor values = at::mul(at::silu(halves[0]), halves[1]);
    if (smooth_scale) {
      values = at::mul(values, at::Tensor(*smooth_scale)[range.group]);
    }
    const ScaledRows scaled = ScaleRows(values, LargestQuantized(y));
    at::Tensor(y).narrow(0, range.begin, length).copy_(scaled.values.nan_to_num(0.0).round().clamp(-128, 127));
    at::Tensor(y_scale).narrow(0, range.begin, length).copy_(scaled.scale);
  }
}

Plan PlanSwiGlu(const GroupedSwiGluQuant& call) {
  call.Require();
  auto owned = std::make_shared<GroupedSwiGluQuant>(call);
  return [owned] { owned->Run(); };
}

OptionalTensorList ListOf(const aclTensor* tensor, const char* name) {
  aclTensorList list;
  list.tensors.push_back(const_cast<aclTensor*>(tensor));
  return OptionalTensorList(&list, name);
}

// One tensor as a list of one.
class TensorInList : public OptionalTensorList {
 public:
  using Abi = const aclTensor*;

  TensorInList(const aclTensor* tensor, const char* name) : OptionalTensorList(ListOf(tensor, name)) {}
};

// As TensorInList; absent where the tensor is.
class OptionalTensorInList : public OptionalTensorList {
 public:
  using Abi = const aclTensor*;

  OptionalTensorInList(const aclTensor* tensor, const char* name)
      : OptionalTensorList(tensor == nullptr ? OptionalTensorList(nullptr, name) : ListOf(tensor, name)) {}
};

void RequireZero(const Int& mode) {
  if (mode != 0) {
    RefuseArgument(mode.name(), "0 on this device", std::to_string(mode));
  }
}

}  // namespace

CANN_SIM_OPERATOR(aclnnGroupedMatmulSwigluQuantWeightNZ, (Tensor, x), (TensorInList, weight),
                  (OptionalTensorInList, bias), (OptionalTensor, offset), (TensorInList, weightScale), (Tensor, xScale), (Tensor, groupList),
                  (Tensor, output), (Tensor, outputScale), (OptionalTensor, outputOffset)) {
  RefuseIfPresent(offset, "an offset");
  // Here `bias` is the assist matrix.
  return PlanSwiGlu({x, weight, weightScale, bias, xScale, OptionalTensor(), groupList, 0, 0, output, outputScale});
}

#define CANN_SIM_GROUPED_SWIGLU                                                                                        \
  (Tensor, x), (OptionalTensorList, weight), (OptionalTensorList, weightScale), (OptionalTensorList, weightAssistMatrix), \
      (OptionalTensor, bias), (Tensor, xScale), (OptionalTensor, smoothScale), (Tensor, groupList), (Int, dequantMode), \
      (Int, dequantDtype), (Int, quantMode), (Int, groupListType), (OptionalIntArray, tuningConfig), (Tensor, output),  \
      (Tensor, outputScale)

#define CANN_SIM_GROUPED_SWIGLU_PLAN                                                                                  \
  RefuseIfPresent(bias, "a bias");                                                                                    \
  if (dequantMode != 0 && dequantMode != 1) {                                                                         \
    RefuseArgument(dequantMode.name(), "0 or 1 on this device", std::to_string(dequantMode));                         \
  }                                                                                                                   \
  RequireZero(quantMode);                                                                                             \
  return PlanSwiGlu({x, weight, weightScale, weightAssistMatrix, xScale, smoothScale, groupList, groupListType,         \
                   dequantMode, output, outputScale})

CANN_SIM_OPERATOR(aclnnGroupedMatmulSwigluQuantV2, CANN_SIM_GROUPED_SWIGLU) { CANN_SIM_GROUPED_SWIGLU_PLAN; }
CANN_SIM_OPERATOR(aclnnGroupedMatmulSwigluQuantWeightNzV2, CANN_SIM_GROUPED_SWIGLU) { CANN_SIM_GROUPED_SWIGLU_PLAN; }

}  // namespace cann_sim::operators
