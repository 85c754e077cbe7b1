// The rank that a call names: a root, or the other end of a message.
#pragma once

#include "communicator.h"

namespace cann_sim::collectives {

// The refusal has code HCCL_E_PARA.
inline HcclResult CheckRank(const char* function, const char* role, const Communicator& communicator, uint32_t rank) {
  return rank < communicator.ranks
             ? HCCL_SUCCESS
             : Refuse(HCCL_E_PARA, std::string(function) + ": " + communicator.Describe() + ": expected a " + role + " below " +
                                       std::to_string(communicator.ranks) + ", found " + std::to_string(rank));
}

}  // namespace cann_sim::collectives
