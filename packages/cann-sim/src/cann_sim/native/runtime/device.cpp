#include "device.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <fstream>
#include <iterator>
#include <regex>

#include "configuration.h"
#include "error_message.h"
#include "monitor.h"

namespace {

using cann_sim::Device;

thread_local Device* current_device = nullptr;

// The device of threads that never called aclrtSetDevice; null where aclInit was not given one.
std::atomic<Device*> default_device{nullptr};

// Never destroyed: worker threads may still run while the process exits.
std::vector<Device*>& Devices() {
  static auto* devices = [] {
    auto* all = new std::vector<Device*>;
    for (uint32_t id = 0; id < cann_sim::configuration::DeviceCount(); ++id) {
      all->push_back(new Device(static_cast<int32_t>(id)));
    }
    return all;
  }();
  return *devices;
}

void MakeCurrent(Device* device) {
  current_device = device;
  if (device != nullptr) {
    device->active.store(true);
  }
}

aclError NoDeviceSet(const char* function) {
  return cann_sim::Fail(ACL_ERROR_RT_CONTEXT_NULL, std::string(function) + ": no device is set on this thread");
}

aclError NoSuchDevice(const char* function, int64_t id) {
  return cann_sim::Fail(ACL_ERROR_RT_INVALID_DEVICEID,
                        std::string(function) + ": expected a device below " + std::to_string(Devices().size()) +
                            " (CANN_SIM_DEVICES sets the number), found " + std::to_string(id));
}

}  // namespace

namespace cann_sim {

Stream& Device::DefaultStream() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (default_stream_ == nullptr) {
    default_stream_ = new Stream(*this, next_stream_id_++, 0);
  }
  return *default_stream_;
}

Stream* Device::CreateStream(uint32_t priority) {
  DefaultStream();
  const std::lock_guard<std::mutex> lock(mutex_);
  if (streams_.size() + graph_streams_ >= configuration::StreamLimit()) {
    return nullptr;
  }
  streams_.push_back(new Stream(*this, next_stream_id_++, priority));
  return streams_.back();
}

void Device::DestroyStream(Stream& stream) {
  stream.state.store(StreamState::kDestroyed);
  stream.Stop();
  stream.DropTasks();
  const std::lock_guard<std::mutex> lock(mutex_);
  streams_.erase(std::remove(streams_.begin(), streams_.end(), &stream), streams_.end());
  destroyed_.push_back(&stream);
}

std::vector<Stream*> Device::Streams() {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<Stream*> streams = streams_;
  if (default_stream_ != nullptr) {
    streams.push_back(default_stream_);
  }
  return streams;
}

size_t Device::BusyStreams() {
  std::vector<Stream*> streams = Streams();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    streams.insert(streams.end(), destroyed_.begin(), destroyed_.end());
  }
  const auto busy = std::count_if(streams.begin(), streams.end(), [](Stream* stream) { return !stream->Idle(); });
  return static_cast<size_t>(busy);
}

void Device::WakeWorkers() {
  for (Stream* stream : Streams()) {
    stream->Wake();
  }
}

void Device::AbortTasks() {
  stop.Abort("aborted by aclrtDeviceTaskAbort");
  TheMonitor().Update([] {});
  const std::vector<Stream*> streams = Streams();
  for (Stream* stream : streams) {
    stream->Drain();
  }
  stop.Forget();
}

bool Device::MustRestart() {
  if (stop.failure() != nullptr) {
    return true;
  }
  const std::vector<Stream*> streams = Streams();
  return std::any_of(streams.begin(), streams.end(), [](Stream* stream) { return stream->hung.load() && !stream->Idle(); });
}

bool Device::HoldGraphStream() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (streams_.size() + graph_streams_ >= configuration::StreamLimit()) {
    return false;
  }
  ++graph_streams_;
  return true;
}

size_t Device::FreeStreams() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return configuration::StreamLimit() - std::min(configuration::StreamLimit(), streams_.size() + graph_streams_);
}

void Device::ReleaseGraphStream() {
  const std::lock_guard<std::mutex> lock(mutex_);
  --graph_streams_;
}

Device* CurrentDevice() {
  if (current_device == nullptr) {
    MakeCurrent(default_device.load());
  }
  return current_device;
}

Device* FindDevice(int32_t id) {
  return id >= 0 && static_cast<size_t>(id) < Devices().size() ? Devices()[static_cast<size_t>(id)] : nullptr;
}

size_t BusyStreams() {
  size_t busy = 0;
  for (Device* device : Devices()) {
    busy += device->BusyStreams();
  }
  return busy;
}

void StopStreams() {
  for (Device* device : Devices()) {
    for (Stream* stream : device->Streams()) {
      stream->Stop();
    }
  }
}

}  // namespace cann_sim

// What a stopped device failed at, where the host does not know of it. Writes at most `size` bytes, returns the length.
extern "C" CANN_SIM_EXPORT size_t cann_sim_untold_failure(char* buffer, size_t size) {
  std::string untold;
  for (const Device* device : Devices()) {
    untold = untold.empty() ? device->stop.Untold() : untold;
  }
  std::memcpy(buffer, untold.data(), std::min(size, untold.size()));
  return untold.size();
}

// Lets all devices work again that stopped at a failure or hang; returns their number.
extern "C" CANN_SIM_EXPORT size_t cann_sim_restart_devices() {
  size_t restarted = 0;
  for (Device* device : Devices()) {
    if (device->MustRestart()) {
      device->AbortTasks();
      ++restarted;
    }
  }
  return restarted;
}

extern "C" {

// Of the configuration only the default device is used.
aclError aclInit(const char* config_path) {
  if (config_path == nullptr || *config_path == '\0') {
    return ACL_SUCCESS;
  }
  std::ifstream file(config_path);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  std::smatch found;
  if (!std::regex_search(text, found, std::regex(R"re("default_device"\s*:\s*"([^"]*)")re"))) {
    return ACL_SUCCESS;
  }
  Device* device = nullptr;
  if (const std::string number = found[1]; std::regex_match(number, std::regex("0|[1-9][0-9]{0,8}"))) {
    device = cann_sim::FindDevice(std::stoi(number));
  }
  if (device == nullptr) {
    return cann_sim::Fail(ACL_ERROR_INVALID_PARAM, std::string("aclInit: the default device of ") + config_path +
                                                       " does not exist: " + std::string(found[1]));
  }
  default_device.store(device);
  return ACL_SUCCESS;
}

aclError aclFinalize() { return ACL_SUCCESS; }

aclError aclrtGetDeviceCount(uint32_t* count) {
  CANN_SIM_REQUIRE_POINTER("aclrtGetDeviceCount", count);
  *count = static_cast<uint32_t>(Devices().size());
  return ACL_SUCCESS;
}

aclError aclrtSetDevice(int32_t id) {
  CANN_SIM_REQUIRE_USABLE("aclrtSetDevice");
  Device* device = cann_sim::FindDevice(id);
  if (device == nullptr) {
    return NoSuchDevice("aclrtSetDevice", id);
  }
  MakeCurrent(device);
  return ACL_SUCCESS;
}

// Says which device would be used and does not make it current.
aclError aclrtGetDevice(int32_t* id) {
  CANN_SIM_REQUIRE_POINTER("aclrtGetDevice", id);
  const Device* device = current_device != nullptr ? current_device : default_device.load();
  if (device == nullptr) {
    return NoDeviceSet("aclrtGetDevice");
  }
  *id = device->id;
  return ACL_SUCCESS;
}

aclError aclrtResetDevice(int32_t id) {
  if (cann_sim::FindDevice(id) == nullptr) {
    return NoSuchDevice("aclrtResetDevice", id);
  }
  if (current_device != nullptr && current_device->id == id) {
    current_device = nullptr;
  }
  return ACL_SUCCESS;
}

// The limit of time is not needed: nothing that is aborted takes long.
aclError aclrtDeviceTaskAbort(int32_t id, uint32_t /*milliseconds*/) {
  CANN_SIM_REQUIRE_USABLE("aclrtDeviceTaskAbort");
  Device* device = cann_sim::FindDevice(id);
  if (device == nullptr) {
    return NoSuchDevice("aclrtDeviceTaskAbort", id);
  }
  device->AbortTasks();
  return ACL_SUCCESS;
}

// A context is the device: one primary context a device, as torch_npu uses them.
aclError aclrtGetCurrentContext(aclrtContext* context) {
  CANN_SIM_REQUIRE_POINTER("aclrtGetCurrentContext", context);
  if (current_device == nullptr) {
    return NoDeviceSet("aclrtGetCurrentContext");
  }
  *context = current_device;
  return ACL_SUCCESS;
}

aclError aclrtSetCurrentContext(aclrtContext context) {
  CANN_SIM_REQUIRE_POINTER("aclrtSetCurrentContext", context);
  MakeCurrent(static_cast<Device*>(context));
  return ACL_SUCCESS;
}

aclError aclrtGetPrimaryCtxState(int32_t id, uint32_t* flags, int32_t* active) {
  Device* device = cann_sim::FindDevice(id);
  if (device == nullptr) {
    return NoSuchDevice("aclrtGetPrimaryCtxState", id);
  }
  if (flags != nullptr) {
    *flags = 0;
  }
  if (active != nullptr) {
    *active = device->active.load() ? 1 : 0;
  }
  return ACL_SUCCESS;
}

aclError aclrtGetLogicDevIdByUserDevId(const int32_t user_id, int32_t* const logic_id) {
  CANN_SIM_REQUIRE_POINTER("aclrtGetLogicDevIdByUserDevId", logic_id);
  *logic_id = user_id;
  return ACL_SUCCESS;
}

aclError aclrtDeviceCanAccessPeer(int32_t* can_access, int32_t device, int32_t peer) {
  CANN_SIM_REQUIRE_POINTER("aclrtDeviceCanAccessPeer", can_access);
  *can_access = device != peer && cann_sim::FindDevice(device) != nullptr && cann_sim::FindDevice(peer) != nullptr;
  return ACL_SUCCESS;
}

aclError aclrtDeviceEnablePeerAccess(int32_t peer, uint32_t /*flags*/) {
  return cann_sim::FindDevice(peer) != nullptr ? ACL_SUCCESS : NoSuchDevice("aclrtDeviceEnablePeerAccess", peer);
}

}  // extern "C"
