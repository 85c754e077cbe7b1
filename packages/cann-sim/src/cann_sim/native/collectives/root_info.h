// The blob that one rank creates and passes to the others, by which they find their common memory.
#pragma once

#include "interface.h"
#include "shared_segment.h"

namespace cann_sim::collectives {

struct RootInfo {
  Process process;  // that made it
  int32_t file;     // number of the file in that process
  uint64_t identity;
};

// Makes the file, and keeps it open until ReleaseRoot.
HcclResult CreateRoot(const char* function, RootInfo& root);
void ReleaseRoot(uint64_t identity);

void Write(const RootInfo& root, HcclRootInfo& blob);
// HCCL_E_PARA where Write did not make it.
HcclResult Read(const char* function, const HcclRootInfo& blob, RootInfo& root);

// Maps the segment. HCCL_E_PARA where the process that made the root info has ended or hides its files.
HcclResult MapSegment(const char* function, const RootInfo& root, uint32_t ranks, std::unique_ptr<SharedSegment>& segment);

}  // namespace cann_sim::collectives
