// CANN_SIM_MEMORY_CHECK: what kernels and copies do with memory that a device would not report.
//
// "on" finds, under every schedule: two launches that nothing orders and that share memory which one of them writes; memory that
// is freed before the kernel that uses it has ended, or before a replay of a graph that it was captured into; a tensor or a copy
// that reaches outside its allocation; bytes after an allocation that were overwritten. "full" also fills new memory with bytes
// that are NaN in every floating type, and finds a tensor that is read before any of it was written, and a kernel that changes
// an argument that it does not write. What is found fails the launch or the next synchronisation.
//
// The caching allocator of torch_npu works on top of this: for memory that it reuses without aclrtFree only the order
// is checked.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "memory_access.h"

namespace cann_sim {

// The kernel, or copy, with the check's work before and after it. `name` is in static memory; `captured` says that it becomes
// part of a graph.
std::function<void()> Checked(const char* name, std::vector<MemoryAccess> accesses, bool captured, std::function<void()> run);
// What the host itself is about to do. Returns what is wrong with it, or nothing.
std::string FindHostMistake(const char* name, std::vector<MemoryAccess> accesses);

// The range is memory of its own from now on: nobody has written to it yet.
void NoteNewMemory(void* address, size_t bytes);
// The host is about to free the range.
void NoteFreedMemory(const char* function, const void* address, size_t bytes);
// Something that the check does not see may write to the range.
void NoteUnseenWrites(const void* address, size_t bytes);

// Notes a mistake for the next synchronisation; the first counts.
void KeepMemoryMistake(std::string mistake);
// The mistake that was kept, once; empty where there is none.
std::string TakeMemoryMistake();

}  // namespace cann_sim
