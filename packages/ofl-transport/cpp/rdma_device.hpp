// The RDMA devices that this process uses: one context and one protection domain each, opened at the first use and kept
// for the process's life, so that memory registered once serves every connection.
//
// fork(): a context belongs to the process that opened it.  The child finds an empty list and opens its own; what it
// inherited is never used again, and its descriptors are closed there, so that the parent's end is the peer's news.
#pragma once

#ifdef OFL_VERBS

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "gid_choice.hpp"
#include "memory.hpp"
#include "verbs.hpp"

namespace ofl {

class RdmaDevice final : public Registrar {
 public:
  RdmaDevice(const RdmaDevice&) = delete;
  RdmaDevice& operator=(const RdmaDevice&) = delete;

  const std::string& name() const noexcept { return name_; }
  const Verbs& verbs() const noexcept { return verbs_; }
  ibv_context* context() const noexcept { return context_.get(); }
  ibv_pd* domain() const noexcept { return domain_.get(); }
  const ibv_device_attr& limits() const noexcept { return limits_; }
  // True in a child of fork(): nothing of the device may be touched.
  bool foreign() const noexcept;

  Outcome add(std::span<std::byte> memory, std::unique_ptr<Registration>& registration) override;
  // `access`: flags of ibv_access_flags.
  Outcome register_memory(std::span<std::byte> memory, int access, UniqueRegion& region);

 private:
  friend class RdmaHost;
  RdmaDevice(std::string name, const Verbs& verbs);
  Outcome open();
  // Events that nobody waits for pile up in the kernel until they are read.  False: the device is dead.
  bool drain_events() noexcept;
  // In a child of fork(), once.
  void leave_to_parent() noexcept;

  const std::string name_;
  const Verbs& verbs_;
  const std::uint32_t fork_generation_;
  UniqueContext context_;
  UniqueDomain domain_;
  ibv_device_attr limits_{};
  bool alive_ = true;
};

// A device's port as an address uses it.
struct RdmaPort {
  RdmaDevice* device = nullptr;
  GidChoice choice;
  std::uint32_t mtu_bytes = 0;          // active path MTU
  std::uint32_t message_bytes_max = 0;  // of one send or write
};

// The port that carries a local address of this host, its device opened.
Outcome find_rdma_port(const Address& local, RdmaPort& port);

// The first device with an ACTIVE Ethernet port.
Outcome find_any_rdma_device(RdmaDevice*& device);

}  // namespace ofl

#endif
