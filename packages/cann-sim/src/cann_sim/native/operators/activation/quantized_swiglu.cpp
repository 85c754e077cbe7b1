// SwiGLU with quantisation after it, and with dequantisation before it.

#include <ATen/ops/abs.h>
#include <ATen/ops/add.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/chunk.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/clamp_max.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/div.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/reciprocal.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>

#include "../interface/operator.h"
#include "../quantization/quantization.h"

namespace cann_sim::operators {

namespace {

using c10::ScalarType;

at::Tensor SwiGlu(const at::Tensor& x, bool activate_left) {
  const std::vector<at::Tensor> halves = at::chunk(x, 2, -1);
  return activate_left ? at::mul(at::silu(halves[0]), halves[1]) : at::mul(halves[0], at::silu(halves[1]));
}

// The ends of groups, from ends or from sizes.
at::Tensor Ends(const at::Tensor& groups, bool are_sizes) {
  return are_sizes ? at::cumsum(groups, 0, at::kLong) : groups.to(at::kLong);
}

bool IsDynamic(const OptionalText& mode) {
  if (mode.value() != "static" && mode.value() != "dynamic") {
    RefuseArgument(mode.name(), "static or dynamic", mode.value());
  }
  return mode.value() == "dynamic";
}

void RequireNumel(const Tensor& tensor, int64_t count) {
  if (tensor.numel() != count) {
    RefuseArgument(tensor.name(), std::to_string(count) + " elements", "shape " + Describe(tensor.sizes()));
  }
}

// [groups] or [groups, width]; without groups one row.
void RequireGroupParameter(const Tensor& tensor, int64_t groups, int64_t width) {
  RequireDtype(tensor, {ScalarType::Float});
  const bool fits = tensor.numel() == groups || tensor.sizes() == c10::IntArrayRef({groups, width}) ||
                    (groups == 1 && tensor.sizes() == c10::IntArrayRef({width}));
  if (!fits) {
    RefuseArgument(tensor.name(),
                   "shape [" + std::to_string(groups) + "] or [" + std::to_string(groups) + ", " + std::to_string(width) + "]",
                   Describe(tensor.sizes()));
  }
}

}  // namespace

// v = silu of one half of x times the other, times the smoothing factors. Dynamic: scale = 127 / max |row of v|,
// y = round(v * scale). Static: y = round(v + offsets). Groups of rows have factors of their own.
CANN_SIM_OPERATOR(aclnnSwiGluQuantV2, (Tensor, x), (OptionalTensor, smoothScales), (OptionalTensor, offsets),
                  (OptionalTensor, groupIndex), (Bool, activateLeft), (OptionalText, quantMode), (Int, groupListType),
                  (Int32, dstType), (Tensor, yOut), (Tensor, scaleOut)) {
  RequireDtype(x, kFloats);
  RequireRank(x, 2, kMaxRank);
  RequireContiguous(x);
  const int64_t width = x.size(-1) / 2;
  if (x.size(-1) % 2 != 0 || x.size(-1) > 8192) {
    RefuseArgument(x.name(), "an even last dimension of at most 8192", Describe(x.sizes()));
  }
  if (dstType != static_cast<int>(ACL_INT8)) {
    RefuseArgument(dstType.name(), "int8 (int4 is not simulated)", std::to_string(dstType));
  }
  std::vector<int64_t> expected = x.sizes().vec();
  expected.back() = width;
  RequireDtype(yOut, {ScalarType::Char});
  RequireShape(yOut, expected);
  expected.pop_back();
  RequireDtype(scaleOut, {ScalarType::Float});
  RequireShape(scaleOut, expected);
  const bool dynamic = IsDynamic(quantMode);
  int64_t groups = 1;
  if (groupIndex) {
    RequireDtype(*groupIndex, {ScalarType::Int});
    RequireRank(*groupIndex, 1, 1);
    groups = groupIndex->size(0);
  }
  if (smoothScales) {
    RequireGroupParameter(*smoothScales, groups, width);
  }
  if (!dynamic) {
    if (!smoothScales || !offsets) {
      RefuseArgument(smoothScales.name(), "smoothScales and offsets in static mode", "none");
    }
    RequireShape(*offsets, smoothScales->sizes());
    RequireDtype(*offsets, {ScalarType::Float});
  }
  return [=] {
    if (x.numel() == 0) {
      return;
    }
    at::Tensor values = SwiGlu(x.Widened(), activateLeft).reshape({-1, width});
    const auto spread = [&](const Tensor& parameters, double behind) {
      const at::Tensor rows = parameters.Widened().reshape({groups, -1});
      return groupIndex ? SpreadGroups(rows, Ends(*groupIndex, groupListType == 1), values.size(0), behind) : rows;
    };
    if (smoothScales) {
      values = at::mul(values, spread(*smoothScales, 1));
    }
    if (dynamic) {
      const ScaledRows scaled = ScaleRows(values, LargestQuantized(yOut));
      StoreQuantized(yOut, scaled.values.view(yOut.sizes()));
      scaleOut.Store(at::reciprocal(scaled.scale).view(scaleOut.sizes()));
    } else {
      StoreQuantized(yOut, at::add(values, spread(*offsets, 0)).view(yOut.sizes()));
    }
  };
}

namespace {

// The variant of gpt-oss: both halves clamped, a sigmoid with a factor, and an addend.
at::Tensor ClampedSwiGlu(const at::Tensor& gate, const at::Tensor& linear, double limit, double alpha, double addend) {
  const at::Tensor clamped = at::clamp_max(gate, limit);
  const at::Tensor activated = at::mul(clamped, at::sigmoid(at::mul(clamped, alpha)));
  return at::mul(activated, at::add(at::clamp(linear, -limit, limit), addend));
}

}  // namespace

// x dequantised (where it is int32), SwiGLU, quantised. Dynamic: v times quantScale, scale = max |row of v| / 127,
// y = round(v / scale). Static: y = round(v / quantScale + quantOffset). groupIndex holds the sizes of groups of rows.
CANN_SIM_OPERATOR(aclnnDequantSwigluQuantV2, (Tensor, x), (OptionalTensor, weightScale), (OptionalTensor, activationScale),
                  (OptionalTensor, bias), (OptionalTensor, quantScale), (OptionalTensor, quantOffset),
                  (OptionalTensor, groupIndex), (Bool, activateLeft), (OptionalText, quantMode), (Int, dstType),
                  (OptionalText, roundMode), (Int, activateDim), (Int, swigluMode), (Double, clampLimit),
                  (Double, gluAlpha), (Double, gluBias), (Tensor, yOut), (Tensor, scaleOut)) {
  RequireDtype(x, {ScalarType::Int, ScalarType::BFloat16});
  RequireRank(x, 2, 2);
  RequireContiguous(x);
  if (x.size(1) % 64 != 0) {
    RefuseArgument(x.name(), "a last dimension that is a multiple of 64", Describe(x.sizes()));
  }
  const int64_t width = x.size(1) / 2;
  const bool dynamic = IsDynamic(quantMode);
  if (dstType != static_cast<int>(ACL_INT8) || activateDim != -1 ||
      !(roundMode.value().empty() || roundMode.value() == "rint")) {
    RefuseArgument(dstType.name(), "int8, rounding rint and activateDim -1", std::to_string(dstType));
  }
  if (swigluMode < 0 || swigluMode > 2 || (swigluMode == 1 && !activateLeft)) {
    RefuseArgument(swigluMode.name(), "0, 2, or 1 with activateLeft", std::to_string(swigluMode));
  }
  RequireDtype(yOut, {ScalarType::Char});
  RequireShape(yOut, {x.size(0), width});
  RequireDtype(scaleOut, {ScalarType::Float});
  RequireShape(scaleOut, {x.size(0)});
  int64_t groups = 1;
  if (groupIndex) {
    RequireDtype(*groupIndex, {ScalarType::Long});
    RequireRank(*groupIndex, 1, 1);
    groups = groupIndex->size(0);
  }
  const bool integers = x.dtype() == ScalarType::Int;
  if (integers && !weightScale) {
    RefuseArgument(weightScale.name(), "a tensor beside an int32 'x'", "none");
  }
  for (const OptionalTensor& parameter : {weightScale, activationScale, bias}) {
    if (parameter && !integers) {
      RefuseArgument(parameter.name(), "none beside a bfloat16 'x'", "a tensor");
    }
  }
  if (weightScale) {
    RequireDtype(*weightScale, {ScalarType::Float});
    RequireNumel(*weightScale, groups * x.size(1));
  }
  if (activationScale) {
    RequireDtype(*activationScale, {ScalarType::Float});
    RequireNumel(*activationScale, x.size(0));
  }
  if (bias) {
    RequireDtype(*bias, kFloats | DtypeSet{ScalarType::Int});
    RequireNumel(*bias, groups * x.size(1));
  }
  if (quantScale) {
    RequireGroupParameter(*quantScale, groups, width);
  }
  if (!dynamic) {
    if (!quantScale || !quantOffset) {
      RefuseArgument(quantScale.name(), "quantScale and quantOffset in static mode", "none");
    }
    RequireDtype(*quantOffset, {ScalarType::Float});
    RequireShape(*quantOffset, quantScale->sizes());
  } else if (quantOffset) {
    RefuseArgument(quantOffset.name(), "none in dynamic mode", "a tensor");
  }
  return [=] {
    if (x.numel() == 0) {
      return;
    }
    const at::Tensor ends = groupIndex ? Ends(*groupIndex, true) : at::Tensor();
    const auto spread = [&](const Tensor& parameters, double behind) {
      // int32 stays exact in float64.
      const bool wide = parameters.dtype() == ScalarType::Int;
      const at::Tensor rows = at::Tensor(parameters).to(wide ? at::kDouble : at::kFloat).reshape({groups, -1});
      return groupIndex ? SpreadGroups(rows, ends, x.size(0), behind) : rows;
    };
    at::Tensor values = x.Widened();
    if (integers) {
      const bool bias_first = bias && bias->dtype() == ScalarType::Int;
      values = bias_first ? at::add(at::Tensor(x).to(at::kDouble), spread(*bias, 0)).to(at::kFloat) : values;
      values = at::mul(values, spread(*weightScale, 1));
      if (activationScale) {
        values = at::mul(values, activationScale->Widened().reshape({-1, 1}));
      }
      if (bias && !bias_first) {
        values = at::add(values, spread(*bias, 0));
      }
    }
    if (swigluMode == 0) {
      values = SwiGlu(values, activateLeft);
    } else {
      const std::vector<at::Tensor> parts =
          swigluMode == 1 ? values.unflatten(-1, {-1, 2}).unbind(-1) : at::chunk(values, 2, -1);
      values = ClampedSwiGlu(parts[activateLeft ? 0 : 1], parts[activateLeft ? 1 : 0], clampLimit, gluAlpha, gluBias);
    }
    if (!dynamic) {
      StoreQuantized(yOut, at::add(at::div(values, spread(*quantScale, 1)), spread(*quantOffset, 0)));
      return;
    }
    if (quantScale) {
      values = at::mul(values, spread(*quantScale, 1));
    }
    const at::Tensor scale = at::amax(at::abs(values), {-1}, true).mul_(1.0 / 127);
    StoreQuantized(yOut, at::div(values, scale));
    scaleOut.Store(scale.squeeze(-1));
  };
}

}  // namespace cann_sim::operators
