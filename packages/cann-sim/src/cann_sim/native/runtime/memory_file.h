// The memory of a device as a file in memory. A file can be mapped more than once and by other processes, which is what
// expandable segments and memory shared between processes are made of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace cann_sim {

struct Device;

constexpr size_t kPageBytes = 4096;
constexpr size_t kSlotBytes = 64;

class MemoryFile {
 public:
  // A file of so many bytes of addresses; pages that nobody wrote to cost nothing.
  MemoryFile(std::string name, size_t bytes);

  int file() const { return file_; }
  // Offset of a range that is free, a multiple of the alignment; empty where there is none. Its pages hold zeros.
  std::optional<size_t> Take(size_t bytes, size_t alignment = kPageBytes);
  // False where no range begins there. The pages go back to the operating system.
  bool GiveBack(size_t offset);
  // Where the file is mapped as a whole; null where the process has no room for it.
  char* base();

  // 64 bytes that another process may map to share small state. What an earlier use left in them is still there.
  std::optional<size_t> TakeSlot();
  void GiveSlotBack(size_t offset);

 private:
  const size_t bytes_;
  int file_ = -1;
  std::mutex mutex_;
  char* base_ = nullptr;
  std::map<size_t, size_t> free_;
  std::map<size_t, size_t> taken_;
  std::vector<size_t> free_slots_;
};

// The file of the device in this process.
MemoryFile& MemoryFileOf(const Device& device);
// Pinned memory of the host that is mapped by pages.
MemoryFile& HostMemoryFile();

// A range of the memory file of a device of some process.
struct SharedRange {
  int32_t process;
  int32_t device;
  size_t offset;
  size_t bytes;
};

// Opens the memory file of a device of a living process, which may be this one; below 0 where that is impossible.
int OpenMemoryFile(int32_t process, int32_t device);
// Maps the range into this process; null where that is impossible. The range is mapped by whole pages.
void* MapSharedRange(const SharedRange& range);
void UnmapSharedRange(void* address, const SharedRange& range);

}  // namespace cann_sim
