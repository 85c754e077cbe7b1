// What sending tokens to the devices of their experts (dispatch) and bringing the results back (combine) share. A device has the
// experts [rank * local, (rank + 1) * local).
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "../interface/argument.h"
#include "rank_exchange.h"

namespace cann_sim::operators {

// The attributes that every device of a call must give alike.
struct ExpertGroup {
  RankGroup ranks;
  int64_t experts;
  int64_t most_tokens;  // of one device

  int64_t local() const { return experts / ranks.size; }
};

// The attributes as the interface has them.
struct ExpertGroupArguments {
  const Text& name;
  int64_t size, rank, experts;
  int64_t tensor_parallel_size, tensor_parallel_rank;
  int64_t shard_type, shared_experts, shared_ranks, global_tokens;
};

// Refuses what the device has not; `tokens` are those of this device.
ExpertGroup MakeExpertGroup(const ExpertGroupArguments& given, int64_t tokens);
// Refuses other algorithms than those of the device; all give the same results.
void RequireAlgorithm(const OptionalText& algorithm);
// Refuses experts that are no network: zero, copy and constant experts, and what belongs to them.
void RequireNoSpecialExperts(int64_t zero, int64_t copies, int64_t constants, std::initializer_list<const OptionalTensor*> tensors);

// `expert_ids` must be int32 [tokens, 1 to 16], and the mask bool [tokens] or of the shape of `expert_ids`.
void RequireChoices(const Tensor& expert_ids, const OptionalTensor& active_mask, const ExpertGroup& group);

// One choice of a token of this device that is sent.
struct Choice {
  int64_t token, position, expert;
  int64_t number;  // among the choices of this device for that expert
};

// The choices that are sent, by token. Fails where an expert does not exist.
std::vector<Choice> ActiveChoices(const Tensor& expert_ids, const OptionalTensor& active_mask, const ExpertGroup& group);

}  // namespace cann_sim::operators
