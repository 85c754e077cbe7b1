#include "device.h"

#include <algorithm>

#include "configuration.h"
#include "error_message.h"

namespace {

using cann_sim::Device;

thread_local Device* current_device = nullptr;

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

bool Device::HoldGraphStream() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (streams_.size() + graph_streams_ >= configuration::StreamLimit()) {
    return false;
  }
  ++graph_streams_;
  return true;
}

void Device::ReleaseGraphStream() {
  const std::lock_guard<std::mutex> lock(mutex_);
  --graph_streams_;
}

Device* CurrentDevice() { return current_device; }

Device* FindDevice(int32_t id) {
  return id >= 0 && static_cast<size_t>(id) < Devices().size() ? Devices()[static_cast<size_t>(id)] : nullptr;
}

bool StreamsAreIdle() {
  for (Device* device : Devices()) {
    for (Stream* stream : device->Streams()) {
      if (!stream->Idle()) {
        return false;
      }
    }
  }
  return true;
}

void StopStreams() {
  for (Device* device : Devices()) {
    for (Stream* stream : device->Streams()) {
      stream->Stop();
    }
  }
}

}  // namespace cann_sim

extern "C" {

aclError aclInit(const char* /*config_path*/) { return ACL_SUCCESS; }

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
  current_device = device;
  return ACL_SUCCESS;
}

aclError aclrtGetDevice(int32_t* id) {
  CANN_SIM_REQUIRE_POINTER("aclrtGetDevice", id);
  if (current_device == nullptr) {
    return NoDeviceSet("aclrtGetDevice");
  }
  *id = current_device->id;
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
  current_device = static_cast<Device*>(context);
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
    *active = device->Streams().empty() ? 0 : 1;
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
