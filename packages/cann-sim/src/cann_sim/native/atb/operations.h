// The ATB operations that are made from parameters. Each checks the tensors, in the order in which torch_npu passes them,
// and refuses by throwing a Refusal.
#pragma once

#include "../operators/interface/operator.h"
#include "arguments.h"
#include "parameters.h"

namespace cann_sim::atb_library {

operators::Plan MakePlan(const atb::infer::ElewiseParam& parameters, const Arguments& tensors);
operators::Plan MakePlan(const atb::infer::GroupTopkParam& parameters, const Arguments& tensors);
operators::Plan MakePlan(const atb::infer::LinearParam& parameters, const Arguments& tensors);
operators::Plan MakePlan(const atb::infer::PagedAttentionParam& parameters, const Arguments& tensors);
operators::Plan MakePlan(const atb::infer::ReshapeAndCacheParam& parameters, const Arguments& tensors);
operators::Plan MakePlan(const atb::infer::RmsNormParam& parameters, const Arguments& tensors);
operators::Plan MakePlan(const atb::infer::RopeParam& parameters, const Arguments& tensors);
operators::Plan MakePlan(const atb::infer::SelfAttentionParam& parameters, const Arguments& tensors);

}  // namespace cann_sim::atb_library
