// The functions that make and destroy communicators, and the handles by which they are known.

#include <acl/acl_rt.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <vector>

#include "../runtime/device_failure.h"
#include "communicator.h"

namespace {

using cann_sim::collectives::Communicator;
using cann_sim::collectives::kMostRanks;
using cann_sim::collectives::Refuse;
using cann_sim::collectives::RootInfo;

struct Handles {
  std::mutex mutex;
  std::map<HcclComm, std::shared_ptr<Communicator>> communicators;
};

Handles& TheHandles() {
  static auto* handles = new Handles;
  return *handles;
}

std::vector<std::shared_ptr<Communicator>> LivingCommunicators() {
  Handles& handles = TheHandles();
  const std::lock_guard<std::mutex> lock(handles.mutex);
  std::vector<std::shared_ptr<Communicator>> found;
  for (const auto& [handle, communicator] : handles.communicators) {
    found.push_back(communicator);
  }
  return found;
}

// A failed stream skips its later tasks, including collectives: the other ranks would wait for them, or take the next one for
// them.
void FailAll(const std::string& what) {
  for (const std::shared_ptr<Communicator>& communicator : LivingCommunicators()) {
    communicator->Fail(what);
  }
}

HcclComm Register(std::shared_ptr<Communicator> communicator) {
  cann_sim::ObserveFailures(FailAll);
  Handles& handles = TheHandles();
  const std::lock_guard<std::mutex> lock(handles.mutex);
  void* const handle = communicator.get();
  handles.communicators[handle] = std::move(communicator);
  return handle;
}

HcclResult CheckRanks(const char* function, uint32_t ranks, uint32_t rank) {
  if (ranks == 0 || rank >= ranks) {
    return Refuse(HCCL_E_PARA, std::string(function) + ": expected a rank below the number of ranks, found rank " +
                                   std::to_string(rank) + " of " + std::to_string(ranks));
  }
  if (ranks > kMostRanks) {
    return Refuse(HCCL_E_NOT_SUPPORT, std::string(function) + ": more than " + std::to_string(kMostRanks) +
                                          " ranks are not simulated, found " + std::to_string(ranks));
  }
  int32_t device = 0;
  if (aclrtGetDevice(&device) != ACL_SUCCESS) {
    return HCCL_E_RUNTIME;
  }
  return HCCL_SUCCESS;
}

std::string GroupName(const HcclCommConfig* config, const RootInfo& root) {
  const std::string given =
      config == nullptr ? "" : std::string(config->hcclCommName, strnlen(config->hcclCommName, COMM_NAME_MAX_LENGTH));
  return given.empty() ? "root " + std::to_string(root.identity % 1'000'000) : given;
}

HcclResult Initialise(const char* function, uint32_t ranks, const HcclRootInfo* blob, uint32_t rank,
                      const HcclCommConfig* config, HcclComm* comm) {
  HCCL_REQUIRE_POINTER(function, blob);
  HCCL_REQUIRE_POINTER(function, comm);
  HCCL_RETURN_IF_REFUSED(CheckRanks(function, ranks, rank));
  RootInfo root{};
  HCCL_RETURN_IF_REFUSED(cann_sim::collectives::Read(function, *blob, root));
  cann_sim::collectives::Timeouts timeouts{};
  HCCL_RETURN_IF_REFUSED(cann_sim::collectives::ReadTimeouts(function, timeouts));
  if (config != nullptr && config->hcclExecTimeOut >= 0) {
    timeouts.exec_seconds = config->hcclExecTimeOut;
  }
  std::shared_ptr<Communicator> made;
  HCCL_RETURN_IF_REFUSED(Communicator::Take(function, root, ranks, rank, GroupName(config, root), timeouts, made));
  if (const HcclResult result = made->AwaitRanks(function); result != HCCL_SUCCESS) {
    made->Leave();
    return result;
  }
  *comm = Register(std::move(made));
  return HCCL_SUCCESS;
}

}  // namespace

namespace cann_sim::collectives {

std::shared_ptr<Communicator> FindCommunicator(const char* function, HcclComm handle) {
  Handles& handles = TheHandles();
  const std::lock_guard<std::mutex> lock(handles.mutex);
  const auto found = handles.communicators.find(handle);
  if (found == handles.communicators.end()) {
    Refuse(HCCL_E_PARA, std::string(function) + ": the communicator is unknown; was it destroyed?");
    return nullptr;
  }
  return found->second;
}

}  // namespace cann_sim::collectives

using cann_sim::collectives::FindCommunicator;

HCCL_EXPORT HcclResult HcclCommInitRootInfo(uint32_t ranks, const HcclRootInfo* root, uint32_t rank, HcclComm* comm) {
  return Initialise("HcclCommInitRootInfo", ranks, root, rank, nullptr, comm);
}

HCCL_EXPORT HcclResult HcclCommInitRootInfoConfig(uint32_t ranks, const HcclRootInfo* root, uint32_t rank,
                                                  const HcclCommConfig* config, HcclComm* comm) {
  return Initialise("HcclCommInitRootInfoConfig", ranks, root, rank, config, comm);
}

// All ranks are of this process, one a device.
HCCL_EXPORT HcclResult HcclCommInitAll(uint32_t ranks, int32_t* devices, HcclComm* comms) {
  constexpr const char* kFunction = "HcclCommInitAll";
  HCCL_REQUIRE_POINTER(kFunction, devices);
  HCCL_REQUIRE_POINTER(kFunction, comms);
  HCCL_RETURN_IF_REFUSED(CheckRanks(kFunction, ranks, 0));
  RootInfo root{};
  HCCL_RETURN_IF_REFUSED(cann_sim::collectives::CreateRoot(kFunction, root));
  cann_sim::collectives::Timeouts timeouts{};
  HCCL_RETURN_IF_REFUSED(cann_sim::collectives::ReadTimeouts(kFunction, timeouts));
  std::vector<std::shared_ptr<Communicator>> made(ranks);
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    HCCL_RETURN_IF_REFUSED(Communicator::Take(kFunction, root, ranks, rank, GroupName(nullptr, root), timeouts, made[rank]));
  }
  cann_sim::collectives::ReleaseRoot(root.identity);
  std::transform(made.begin(), made.end(), comms, Register);
  return HCCL_SUCCESS;
}

HCCL_EXPORT HcclResult HcclCommDestroy(HcclComm handle) {
  const std::shared_ptr<Communicator> communicator = FindCommunicator("HcclCommDestroy", handle);
  if (communicator == nullptr) {
    return HCCL_E_PARA;
  }
  communicator->Leave();
  Handles& handles = TheHandles();
  const std::lock_guard<std::mutex> lock(handles.mutex);
  handles.communicators.erase(handle);
  return HCCL_SUCCESS;
}

HCCL_EXPORT HcclResult HcclGetRankSize(HcclComm handle, uint32_t* ranks) {
  HCCL_REQUIRE_POINTER("HcclGetRankSize", ranks);
  const std::shared_ptr<Communicator> communicator = FindCommunicator("HcclGetRankSize", handle);
  if (communicator == nullptr) {
    return HCCL_E_PARA;
  }
  *ranks = communicator->ranks;
  return HCCL_SUCCESS;
}

HCCL_EXPORT HcclResult HcclGetRankId(HcclComm handle, uint32_t* rank) {
  HCCL_REQUIRE_POINTER("HcclGetRankId", rank);
  const std::shared_ptr<Communicator> communicator = FindCommunicator("HcclGetRankId", handle);
  if (communicator == nullptr) {
    return HCCL_E_PARA;
  }
  *rank = communicator->rank;
  return HCCL_SUCCESS;
}

HCCL_EXPORT HcclResult HcclGetCommName(HcclComm handle, char* name) {
  HCCL_REQUIRE_POINTER("HcclGetCommName", name);
  const std::shared_ptr<Communicator> communicator = FindCommunicator("HcclGetCommName", handle);
  if (communicator == nullptr) {
    return HCCL_E_PARA;
  }
  std::memset(name, 0, COMM_NAME_MAX_LENGTH);
  communicator->name.copy(name, COMM_NAME_MAX_LENGTH - 1);
  return HCCL_SUCCESS;
}

// Failures of collectives are those of their streams, as are time-outs on a device.
HCCL_EXPORT HcclResult HcclGetCommAsyncError(HcclComm handle, HcclResult* error) {
  HCCL_REQUIRE_POINTER("HcclGetCommAsyncError", error);
  if (FindCommunicator("HcclGetCommAsyncError", handle) == nullptr) {
    return HCCL_E_PARA;
  }
  *error = HCCL_SUCCESS;
  return HCCL_SUCCESS;
}

// The fields of HcclCommConfig up to this one are known here.
HCCL_EXPORT uint32_t HcclGetCommConfigCapability() { return HCCL_COMM_CONFIG_RESERVED; }
