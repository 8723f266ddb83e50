#include "rdma_device.hpp"

#ifdef OFL_VERBS

#include <cerrno>
#include <cstring>
#include <mutex>
#include <vector>

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include "process.hpp"
#include "rdma_memlock.hpp"

namespace ofl {

namespace {

constexpr int kEventsMax = 256;  // read in one go

class DeviceRegistration final : public Registration {
 public:
  DeviceRegistration(const RdmaDevice& device, UniqueRegion region) noexcept
      : device_(device), region_(std::move(region)) {}
  ~DeviceRegistration() override {
    if (device_.foreign()) static_cast<void>(region_.release());  // the parent's
  }
  DeviceRegistration(const DeviceRegistration&) = delete;
  DeviceRegistration& operator=(const DeviceRegistration&) = delete;

  std::uint32_t local_key() const noexcept override { return region_->lkey; }
  std::uint32_t remote_key() const noexcept override { return region_->rkey; }

 private:
  const RdmaDevice& device_;
  UniqueRegion region_;
};

std::uint32_t bytes_of(ibv_mtu mtu) noexcept { return 128U << static_cast<unsigned>(mtu); }

struct FreeDevices {
  const Verbs* verbs;
  void operator()(ibv_device** list) const noexcept { verbs->free_device_list(list); }
};

}  // namespace

RdmaDevice::RdmaDevice(std::string name, const Verbs& verbs)
    : name_(std::move(name)),
      verbs_(verbs),
      fork_generation_(fork_generation()),
      context_(nullptr, {&verbs}),
      domain_(nullptr, {&verbs}) {}

bool RdmaDevice::foreign() const noexcept { return fork_generation_ != fork_generation(); }

Outcome RdmaDevice::open() {
  const std::unique_ptr<ibv_device*, FreeDevices> list((verbs_.get_device_list)(nullptr), {&verbs_});
  if (!list) return failure(OFL_SYSTEM, "cannot list the RDMA devices: " + errno_text(errno));
  ibv_device* found = nullptr;
  for (ibv_device** device = list.get(); *device != nullptr; ++device)
    if (name_ == verbs_.get_device_name(*device)) found = *device;
  if (found == nullptr)
    return failure(OFL_SYSTEM, "libibverbs does not know " + name_ +
                                   ": its provider library (Debian: ibverbs-providers) or /dev/infiniband is missing");
  context_.reset(verbs_.open_device(found));
  if (!context_)
    return failure(OFL_SYSTEM, "cannot open " + name_ + " (/dev/infiniband/uverbs*): " + errno_text(errno));
  static_cast<void>(::fcntl(context_->async_fd, F_SETFL, ::fcntl(context_->async_fd, F_GETFL) | O_NONBLOCK));
  domain_.reset(verbs_.alloc_pd(context_.get()));
  if (!domain_) return failure(OFL_SYSTEM, name_ + " has no protection domain left: " + errno_text(errno));
  const int error = verbs_.query_device(context_.get(), &limits_);
  return error == 0 ? Outcome{} : failure(OFL_SYSTEM, "cannot ask " + name_ + " for its limits: " + errno_text(error));
}

bool RdmaDevice::drain_events() noexcept {
  ibv_async_event event{};
  for (int i = 0; alive_ && i < kEventsMax && verbs_.get_async_event(context_.get(), &event) == 0; ++i) {
    if (event.event_type == IBV_EVENT_DEVICE_FATAL) alive_ = false;
    verbs_.ack_async_event(&event);
  }
  return alive_;
}

void RdmaDevice::leave_to_parent() noexcept {
  if (!std::exchange(alive_, false)) return;
  ::close(context_->cmd_fd);
  ::close(context_->async_fd);
}

Outcome RdmaDevice::add(std::span<std::byte> memory, std::unique_ptr<Registration>& registration) {
  UniqueRegion region(nullptr, {&verbs_});
  Outcome outcome = register_memory(memory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, region);
  if (outcome) registration = std::make_unique<DeviceRegistration>(*this, std::move(region));
  return outcome;
}

Outcome RdmaDevice::register_memory(std::span<std::byte> memory, int access, UniqueRegion& region) {
  if (foreign()) return failure(OFL_CLOSED, name_ + " was opened by the process before a fork");
  errno = 0;
  region = UniqueRegion((verbs_.reg_mr)(domain_.get(), memory.data(), memory.size(), access), {&verbs_});
  if (region) return {};
  const int error = errno;
  const std::byte* const end = memory.data() + memory.size();
  return failure(OFL_SYSTEM, registration_text({.device = name_,
                                                .bytes = memory.size(),
                                                .device_bytes_max = limits_.max_mr_size,
                                                .page_bytes = page_bytes_at(end - 1),
                                                .end = reinterpret_cast<std::uintptr_t>(end),
                                                .error = error},
                                               locked_memory()));
}

// The devices and choices of this process.  One lock for all of it, held across fork() too, so that no child starts with
// libibverbs in the middle of opening a device.
class RdmaHost {
 public:
  static RdmaHost& get() {
    static RdmaHost* const one = new RdmaHost;  // never destroyed: threads may outlive main
    return *one;
  }

  Outcome find_port(const Address& local, RdmaPort& port) {
    const std::scoped_lock lock(mutex_);
    const Verbs* verbs = nullptr;
    Outcome outcome = load_verbs(verbs);
    if (outcome) outcome = choose(local, port.choice);
    if (outcome) outcome = find_device(*verbs, port.choice.entry.device, port.device);
    return outcome ? ask_port(port) : outcome;
  }

  Outcome find_any(RdmaDevice*& device) {
    const std::scoped_lock lock(mutex_);
    const Verbs* verbs = nullptr;
    Outcome outcome = load_verbs(verbs);
    if (!outcome) return outcome;
    const std::vector<GidEntry> entries = read_gids();
    if (entries.empty()) return failure(OFL_INVALID, "this host has no RDMA device with a GID");
    for (const GidEntry& entry : entries) {
      if (entry.link_layer != "Ethernet" || entry.state != "ACTIVE") continue;
      return find_device(*verbs, entry.device, device);
    }
    return failure(OFL_INVALID, "no RDMA device of this host has an ACTIVE Ethernet port");
  }

 private:
  struct Known {
    Gid local;
    std::string netdev;
    GidChoice choice;
  };

  RdmaHost() {
    ::pthread_atfork([] { get().mutex_.lock(); }, [] { get().mutex_.unlock(); }, [] { get().begin_new_life(); });
  }

  // In the child.  The objects stay where they are: ending them would end the parent's.
  void begin_new_life() noexcept {
    for (RdmaDevice* device : devices_) device->leave_to_parent();
    mutex_.unlock();
  }

  Outcome choose(const Address& local, GidChoice& choice) {
    std::string netdev;
    Outcome outcome = owner_of(local, netdev);
    if (!outcome) return outcome;
    const Gid gid = gid_of(local);
    for (Known& known : known_) {
      if (known.local != gid || known.netdev != netdev) continue;
      choice = known.choice;
      if (none_is_better(choice.entry) && still_there(choice.entry)) return {};
      outcome = choose_gid(read_gids(), gid, netdev, choice);
      if (outcome) known.choice = choice;
      return outcome;
    }
    outcome = choose_gid(read_gids(), gid, netdev, choice);
    if (outcome) known_.push_back({gid, netdev, choice});
    return outcome;
  }

  Outcome find_device(const Verbs& verbs, const std::string& name, RdmaDevice*& found) {
    for (RdmaDevice* device : devices_) {
      // What is dead or the parent's stays listed: connections and registrations still name it.
      if (device->name() != name || device->foreign() || !device->drain_events()) continue;
      found = device;
      return {};
    }
    Outcome outcome = make_forks_safe(verbs);
    if (!outcome) return outcome;
    std::unique_ptr<RdmaDevice> fresh(new RdmaDevice(name, verbs));
    outcome = fresh->open();
    devices_.reserve(devices_.size() + 1);
    if (outcome) devices_.push_back(found = fresh.release());
    return outcome;
  }

  static Outcome ask_port(RdmaPort& port) {
    ibv_port_attr attributes{};
    // libibverbs fills the older, shorter form; the rest stays zero.
    auto* const older = reinterpret_cast<_compat_ibv_port_attr*>(&attributes);
    const RdmaDevice& device = *port.device;
    const int error = (device.verbs().query_port)(device.context(), port.choice.entry.port, older);
    if (error != 0) return failure(OFL_SYSTEM, "cannot ask " + device.name() + " for its port: " + errno_text(error));
    port.mtu_bytes = bytes_of(attributes.active_mtu);
    port.message_bytes_max = attributes.max_msg_sz;
    return {};
  }

  std::mutex mutex_;
  std::vector<RdmaDevice*> devices_;
  std::vector<Known> known_;
};

Outcome find_rdma_port(const Address& local, RdmaPort& port) { return RdmaHost::get().find_port(local, port); }

Outcome find_any_rdma_device(RdmaDevice*& device) { return RdmaHost::get().find_any(device); }

}  // namespace ofl

#endif
