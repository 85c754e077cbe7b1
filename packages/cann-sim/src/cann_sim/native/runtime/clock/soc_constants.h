// What the virtual clock knows of an Ascend 910B: one row a constant, with where it is from. Read by Python too, as text.
#pragma once

#include <array>

namespace cann_sim::clock {

// How far a constant can be relied on.
enum class Origin { kDocumented, kPublished, kFitted, kAssumed };

struct Constant {
  const char* name;
  double value;
  const char* unit;
  Origin origin;
  const char* source;
};

// Of a 910B2 where measured (24 cube and 48 vector cores, as the 910B1 that is simulated).
enum Name : size_t {
  kKernelOverhead,
  kHbmBandwidth,
  kL2Bandwidth,
  kL2Bytes,
  kCubeRate,
  kVectorRate,
  kControlTask,
  kUpdateCopy,
  kReplayOverhead,
  kHostLink,
  kHostLaunch,
  kHostWake,
  kConstants,
};

inline constexpr const char* kCopies =
    "GroundUpScale (github.com/Kirrito-k423/GroundUpScale), goal_process/issue-29-ascend-physical-floor: copies of 8 to 448 MiB on a 910B2";
inline constexpr const char* kProducts =
    "github.com/zzc0721/torch-performance-test-data, issue 109: products in bfloat16 on a 910B2";
inline constexpr const char* kNothingFound = "no published figure was found";

inline constexpr std::array<Constant, kConstants> kAscend910b = {{
    {"kernel_overhead", 5100, "ns", Origin::kFitted, kCopies},
    {"hbm_bandwidth", 1.408e12, "bytes/s", Origin::kPublished, kCopies},
    {"l2_bandwidth", 6.17e12, "bytes/s", Origin::kFitted, kCopies},
    {"l2_bytes", 192.0 * 1024 * 1024, "bytes", Origin::kDocumented, "CANN's description of the SoC"},
    {"cube_rate", 319e12, "operations/s", Origin::kFitted, kProducts},
    {"vector_rate", 5.5e12, "operations/s", Origin::kAssumed,
     "48 vector cores that take 256 bytes of float32 a cycle at 1.8 GHz"},
    {"control_task", 300, "ns", Origin::kAssumed, kNothingFound},
    {"update_copy", 2000, "ns", Origin::kAssumed, kNothingFound},
    {"replay_overhead", 10000, "ns", Origin::kAssumed, kNothingFound},
    {"host_link", 25e9, "bytes/s", Origin::kAssumed, "PCI express 4.0 of 16 lanes, less its overhead"},
    {"host_launch", 16500, "ns", Origin::kPublished,
     "GroundUpScale, as kernel_overhead: products too small to keep the device busy, 16 to 19 us each"},
    {"host_wake", 58500, "ns", Origin::kFitted,
     "vllm-ascend, pull requests 4233 and 6432: a synchronisation in front of each replay costs some 85 us, less host_launch and "
     "replay_overhead"},
}};

}  // namespace cann_sim::clock
