// Which RDMA device, port and GID carry the traffic of a local address, and why; or why none can.
//
// `choose_gid` is pure.  The readers below fill its arguments from the kernel (/sys/class/infiniband, interface
// addresses) and never open a device.  No libibverbs here: a build without it can still say what the host has.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "socket.hpp"
#include "status.hpp"

namespace ofl {

using Gid = std::array<std::uint8_t, 16>;

enum class GidType : std::uint8_t { unknown = 0, infiniband_or_roce_v1 = 1, roce_v2 = 2 };

// One entry of a port's GID table, with what its port says of itself.
struct GidEntry {
  std::string device;
  std::uint8_t port = 0;  // from 1
  std::uint32_t index = 0;
  Gid gid{};
  GidType type = GidType::unknown;
  std::string netdev;      // the interface that the GID belongs to; empty: the kernel does not say
  std::string link_layer;  // Ethernet, InfiniBand, iWARP
  std::string state;       // ACTIVE, DOWN, INIT, ARMED
};

struct GidChoice {
  GidEntry entry;
  std::string reason;  // one clause: what was chosen and by which rule
};

// The GID of an address: the address itself for IPv6, ::ffff:a.b.c.d for IPv4.
Gid gid_of(const Address& address) noexcept;
std::string gid_text(const Gid& gid);

// The entry whose GID is `local` on `netdev`, the interface that owns the address.  RoCE v2 goes before v1; only ACTIVE
// Ethernet ports count.  The text of a refusal names what was looked for and what the host has.
Outcome choose_gid(std::span<const GidEntry> entries, const Gid& local, std::string_view netdev, GidChoice& choice);

// False: an entry that the kernel adds later may be chosen instead, as while an address comes up, v1 before v2.
bool none_is_better(const GidEntry& entry) noexcept;

inline constexpr char kInfinibandRoot[] = "/sys/class/infiniband";

// Every GID that is not zero, in the order of devices, ports and indices.  A folder that is missing has none.
std::vector<GidEntry> read_gids(const std::string& root = kInfinibandRoot);
// True if the table still has this entry as it was: cheaper than reading it all again.
bool still_there(const GidEntry& entry, const std::string& root = kInfinibandRoot);

// The interface that owns a local address.
Outcome owner_of(const Address& local, std::string& netdev);

}  // namespace ofl
