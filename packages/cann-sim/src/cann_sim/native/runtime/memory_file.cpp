#include "memory_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <memory>

#include "configuration.h"
#include "device.h"
#include "error_message.h"

namespace {

using cann_sim::kPageBytes;
using cann_sim::kSlotBytes;
using cann_sim::MemoryFile;

// Addresses are plenty: with this many times the memory of a device, holes between allocations do not matter.
constexpr size_t kAddressesPerByte = 16;

size_t RoundUp(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

std::string FileNameOf(int32_t device) { return "cann-sim-device-" + std::to_string(device); }

// The whole pages around a range.
struct Pages {
  explicit Pages(const cann_sim::SharedRange& range)
      : offset(range.offset / kPageBytes * kPageBytes),
        bytes(RoundUp(range.offset - offset + range.bytes, kPageBytes)) {}

  size_t offset;
  size_t bytes;
};

}  // namespace

namespace cann_sim {

MemoryFile::MemoryFile(std::string name, size_t bytes) : bytes_(bytes), file_(memfd_create(name.c_str(), MFD_CLOEXEC)) {
  if (file_ >= 0 && ftruncate(file_, static_cast<off_t>(bytes)) == 0) {
    free_[0] = bytes;
  }
}

std::optional<size_t> MemoryFile::Take(size_t bytes, size_t alignment) {
  const size_t wanted = RoundUp(bytes, kPageBytes);
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const auto [start, room] : free_) {
    const size_t offset = RoundUp(start, alignment);
    const size_t skipped = offset - start;
    if (room < skipped + wanted) {
      continue;
    }
    const size_t left = room - skipped - wanted;
    free_.erase(start);
    if (skipped > 0) {
      free_[start] = skipped;
    }
    if (left > 0) {
      free_[offset + wanted] = left;
    }
    taken_[offset] = wanted;
    return offset;
  }
  return std::nullopt;
}

bool MemoryFile::GiveBack(size_t offset) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = taken_.find(offset);
  if (found == taken_.end()) {
    return false;
  }
  size_t bytes = found->second;
  taken_.erase(found);
  // A child of fork has the pages in common with its parent, which still uses them.
  if (UnusableReason() == nullptr) {
    fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset), static_cast<off_t>(bytes));
  }
  auto after = free_.lower_bound(offset);
  if (after != free_.end() && after->first == offset + bytes) {
    bytes += after->second;
    after = free_.erase(after);
  }
  if (after != free_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second == offset) {
      before->second += bytes;
      return true;
    }
  }
  free_[offset] = bytes;
  return true;
}

char* MemoryFile::base() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (base_ == nullptr) {
    void* mapped = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file_, 0);
    base_ = mapped == MAP_FAILED ? nullptr : static_cast<char*>(mapped);
    if (base_ != nullptr) {
      madvise(base_, bytes_, MADV_DONTDUMP);
    }
  }
  return base_;
}

std::optional<size_t> MemoryFile::TakeSlot() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!free_slots_.empty()) {
      const size_t offset = free_slots_.back();
      free_slots_.pop_back();
      return offset;
    }
  }
  const std::optional<size_t> page = Take(kPageBytes);
  if (page.has_value()) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (size_t offset = *page + kSlotBytes; offset < *page + kPageBytes; offset += kSlotBytes) {
      free_slots_.push_back(offset);
    }
  }
  return page;
}

void MemoryFile::GiveSlotBack(size_t offset) {
  const std::lock_guard<std::mutex> lock(mutex_);
  free_slots_.push_back(offset);
}

MemoryFile& MemoryFileOf(const Device& device) {
  static std::mutex mutex;
  static auto* files = new std::map<int32_t, std::unique_ptr<MemoryFile>>;
  const std::lock_guard<std::mutex> lock(mutex);
  std::unique_ptr<MemoryFile>& file = (*files)[device.id];
  if (file == nullptr) {
    const size_t bytes = RoundUp(configuration::DeviceMemoryBytes(), kPageBytes) * kAddressesPerByte;
    file = std::make_unique<MemoryFile>(FileNameOf(device.id), bytes);
  }
  return *file;
}

MemoryFile& HostMemoryFile() {
  static auto* file = new MemoryFile("cann-sim-host", RoundUp(configuration::DeviceMemoryBytes(), kPageBytes) * kAddressesPerByte);
  return *file;
}

int OpenMemoryFile(int32_t process, int32_t device) {
  const std::string folder = "/proc/" + std::to_string(process) + "/fd";
  const std::string wanted = "/memfd:" + FileNameOf(device) + " (deleted)";
  DIR* entries = opendir(folder.c_str());
  if (entries == nullptr) {
    return -1;
  }
  int file = -1;
  while (const dirent* entry = readdir(entries)) {
    const std::string path = folder + "/" + entry->d_name;
    char target[256];
    const ssize_t length = readlink(path.c_str(), target, sizeof target);
    if (length > 0 && wanted == std::string(target, static_cast<size_t>(length))) {
      file = open(path.c_str(), O_RDWR | O_CLOEXEC);
      break;
    }
  }
  closedir(entries);
  return file;
}

void* MapSharedRange(const SharedRange& range) {
  const int file = OpenMemoryFile(range.process, range.device);
  if (file < 0) {
    return nullptr;
  }
  const Pages pages(range);
  void* mapped = mmap(nullptr, pages.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, static_cast<off_t>(pages.offset));
  close(file);
  return mapped == MAP_FAILED ? nullptr : static_cast<char*>(mapped) + (range.offset - pages.offset);
}

void UnmapSharedRange(void* address, const SharedRange& range) {
  const Pages pages(range);
  munmap(static_cast<char*>(address) - (range.offset - pages.offset), pages.bytes);
}

}  // namespace cann_sim
