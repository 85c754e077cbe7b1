#include "shared_segment.h"

#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <ctime>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstring>

namespace {

using cann_sim::collectives::Channel;
using cann_sim::collectives::Header;
using cann_sim::collectives::kChannelBytes;
using cann_sim::collectives::kWindowBytes;
using cann_sim::collectives::RankSlot;

constexpr size_t kPageBytes = 4096;

constexpr size_t RoundUp(size_t bytes) { return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes; }

constexpr size_t kSlotsOffset = RoundUp(sizeof(Header));

size_t ChannelsOffset(size_t ranks) { return kSlotsOffset + ranks * sizeof(RankSlot); }
size_t WindowsOffset(size_t ranks) { return RoundUp(ChannelsOffset(ranks) + ranks * ranks * sizeof(Channel)); }
size_t ChannelBytesOffset(size_t ranks) { return WindowsOffset(ranks) + ranks * 2 * kWindowBytes; }
size_t SegmentBytes(size_t ranks) { return ChannelBytesOffset(ranks) + ranks * ranks * kChannelBytes; }

}  // namespace

namespace cann_sim::collectives {

int SharedSegment::CreateFile(uint64_t identity) {
  const int file = memfd_create("cann-sim-communicator", MFD_CLOEXEC);
  if (file < 0) {
    return -1;
  }
  if (pwrite(file, &identity, sizeof identity, 0) != sizeof identity) {
    close(file);
    return -1;
  }
  return file;
}

std::unique_ptr<SharedSegment> SharedSegment::Map(int file, uint64_t identity, uint32_t ranks) {
  const size_t bytes = SegmentBytes(ranks);
  uint64_t found = 0;
  struct stat status{};
  if (pread(file, &found, sizeof found, 0) != sizeof found || found != identity || fstat(file, &status) != 0) {
    return nullptr;
  }
  // Another rank may do the same at the same time, to the same size.
  if (static_cast<size_t>(status.st_size) < bytes && ftruncate(file, static_cast<off_t>(bytes)) != 0) {
    return nullptr;
  }
  void* const mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
  if (mapped == MAP_FAILED) {
    return nullptr;
  }
  madvise(mapped, bytes, MADV_DONTDUMP);
  return std::unique_ptr<SharedSegment>(new SharedSegment(static_cast<char*>(mapped), bytes, ranks));
}

SharedSegment::~SharedSegment() { munmap(base_, bytes_); }

RankSlot& SharedSegment::slot(uint32_t rank) { return reinterpret_cast<RankSlot*>(base_ + kSlotsOffset)[rank]; }

char* SharedSegment::window(uint32_t rank, uint32_t turn) {
  return base_ + WindowsOffset(ranks_) + (size_t{rank} * 2 + turn) * kWindowBytes;
}

Channel& SharedSegment::channel(uint32_t sender, uint32_t receiver) {
  return reinterpret_cast<Channel*>(base_ + ChannelsOffset(ranks_))[size_t{sender} * ranks_ + receiver];
}

char* SharedSegment::channel_bytes(uint32_t sender, uint32_t receiver) {
  return base_ + ChannelBytesOffset(ranks_) + (size_t{sender} * ranks_ + receiver) * kChannelBytes;
}

void SharedSegment::Notify() {
  Header& shared = header();
  ++shared.changed;
  if (shared.waiters.load() > 0) {
    syscall(SYS_futex, &shared.changed, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  }
}

void SharedSegment::Sleep(uint32_t since, uint32_t milliseconds) {
  Header& shared = header();
  const timespec limit{milliseconds / 1000, static_cast<long>(milliseconds % 1000) * 1'000'000};
  ++shared.waiters;
  syscall(SYS_futex, &shared.changed, FUTEX_WAIT, since, &limit, nullptr, 0);
  --shared.waiters;
}

void SharedSegment::SetFailure(const std::string& text) {
  Header& shared = header();
  uint32_t none = 0;
  if (!shared.failure_state.compare_exchange_strong(none, 1)) {
    return;
  }
  const size_t length = std::min(text.size(), kTextBytes - 1);
  std::memcpy(shared.failure, text.data(), length);
  shared.failure[length] = '\0';
  shared.failure_state.store(2);
  Notify();
}

std::string SharedSegment::Failure() {
  Header& shared = header();
  return shared.failure_state.load() == 2 ? std::string(shared.failure) : "";
}

}  // namespace cann_sim::collectives
