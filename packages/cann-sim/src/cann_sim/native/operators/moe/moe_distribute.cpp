#include "moe_distribute.h"

#include <algorithm>
#include <array>

#include "../interface/validation.h"

namespace cann_sim::operators {

namespace {

using c10::ScalarType;

// One device alone is no documented size; it sends everything to itself.
constexpr std::array<int64_t, 13> kSizes{1, 2, 3, 4, 5, 6, 7, 8, 16, 32, 64, 128, 256};
constexpr int64_t kMostExperts = 1024;
constexpr int64_t kMostChoices = 16;
constexpr int64_t kMostTokens = 512;
constexpr size_t kLongestName = 127;

}  // namespace

ExpertGroup MakeExpertGroup(const ExpertGroupArguments& given, int64_t tokens) {
  if (given.name.value().empty() || given.name.value().size() > kLongestName) {
    RefuseArgument(given.name.name(), "a name of 1 to 127 characters", "'" + given.name.value() + "'");
  }
  if (std::find(kSizes.begin(), kSizes.end(), given.size) == kSizes.end()) {
    RefuseArgument("epWorldSize", "1 to 8, 16, 32, 64, 128 or 256", std::to_string(given.size));
  }
  if (given.rank < 0 || given.rank >= given.size) {
    RefuseArgument("epRankId", "[0, " + std::to_string(given.size) + ")", std::to_string(given.rank));
  }
  if (given.experts < 1 || given.experts > kMostExperts || given.experts % given.size != 0) {
    RefuseArgument("moeExpertNum", "a multiple of " + std::to_string(given.size) + " up to 1024", std::to_string(given.experts));
  }
  if (given.tensor_parallel_size != 0 && given.tensor_parallel_size != 1) {
    RefuseArgument("tpWorldSize", "0 or 1, none on this device", std::to_string(given.tensor_parallel_size));
  }
  if (given.shard_type != 0 || given.shared_ranks != 0 || given.shared_experts < 0 || given.shared_experts > 1) {
    RefuseArgument("expertShardType, sharedExpertNum and sharedExpertRankNum", "0, 0 or 1, and 0, none on this device",
                   std::to_string(given.shard_type) + ", " + std::to_string(given.shared_experts) + " and " +
                       std::to_string(given.shared_ranks));
  }
  if (tokens < 1 || tokens > kMostTokens) {
    RefuseArgument("expertIds", "1 to 512 tokens", std::to_string(tokens));
  }
  const int64_t most = given.global_tokens == 0 ? tokens : given.global_tokens / given.size;
  if (given.global_tokens % given.size != 0 || most < tokens) {
    RefuseArgument("globalBs", "0, or the most tokens of a device (here at least " + std::to_string(tokens) + ") times " +
                                   std::to_string(given.size), std::to_string(given.global_tokens));
  }
  return {{given.name.value(), given.size, given.rank}, given.experts, most};
}

void RequireAlgorithm(const OptionalText& algorithm) {
  const std::string& name = algorithm.value();
  if (!name.empty() && name != "fullmesh" && name != "hierarchy") {
    RefuseArgument(algorithm.name(), "'', fullmesh or hierarchy", name);
  }
}

void RequireNoSpecialExperts(int64_t zero, int64_t copies, int64_t constants,
                             std::initializer_list<const OptionalTensor*> tensors) {
  if (zero != 0 || copies != 0 || constants != 0) {
    RefuseArgument("zeroExpertNum, copyExpertNum and constExpertNum", "0 (others are not simulated)", "others");
  }
  for (const OptionalTensor* tensor : tensors) {
    RefuseIfPresent(*tensor, "experts that are no network, elastic groups and measured times");
  }
}

void RequireChoices(const Tensor& expert_ids, const OptionalTensor& active_mask, const ExpertGroup& group) {
  RequireDtype(expert_ids, {ScalarType::Int});
  if (expert_ids.size(1) < 1 || expert_ids.size(1) > std::min(kMostChoices, group.experts)) {
    RefuseArgument(expert_ids.name(), "1 to " + std::to_string(std::min(kMostChoices, group.experts)) + " experts of a token",
                   Describe(expert_ids.sizes()));
  }
  if (active_mask) {
    RequireDtype(*active_mask, kBool);
    RequireRank(*active_mask, 1, 2);
    RequireShape(*active_mask, expert_ids.sizes().slice(0, static_cast<size_t>(active_mask->rank())));
  }
}

std::vector<Choice> ActiveChoices(const Tensor& expert_ids, const OptionalTensor& active_mask, const ExpertGroup& group) {
  const at::Tensor experts = at::Tensor(expert_ids).to(at::kLong).contiguous();
  at::Tensor active;
  if (active_mask) {
    active = at::Tensor(*active_mask);
    active = (active.dim() == 1 ? active.unsqueeze(1) : active).expand(experts.sizes()).contiguous();
  }
  std::vector<int64_t> sent(static_cast<size_t>(group.experts));
  std::vector<Choice> choices;
  for (int64_t token = 0; token < experts.size(0); ++token) {
    for (int64_t position = 0; position < experts.size(1); ++position) {
      const int64_t place = token * experts.size(1) + position;
      if (active.defined() && !active.data_ptr<bool>()[place]) {
        continue;
      }
      const int64_t expert = experts.data_ptr<int64_t>()[place];
      if (expert < 0 || expert >= group.experts) {
        RefuseArgument(expert_ids.name(), "experts in [0, " + std::to_string(group.experts) + ")", std::to_string(expert));
      }
      choices.push_back({token, position, expert, sent[static_cast<size_t>(expert)]++});
    }
  }
  return choices;
}

}  // namespace cann_sim::operators
