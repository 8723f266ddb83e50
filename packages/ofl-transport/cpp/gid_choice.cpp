#include "gid_choice.hpp"

#include <algorithm>
#include <cstring>

#include <arpa/inet.h>
#include <netinet/in.h>

namespace ofl {

namespace {

constexpr std::size_t kNamedMax = 6;      // entries that a refusal lists
constexpr std::uint32_t kIndexMax = 255;  // an address handle names the index in 8 bits

std::string port_text(const GidEntry& entry) { return entry.device + " port " + std::to_string(entry.port); }

const char* type_text(GidType type) noexcept {
  switch (type) {
    case GidType::roce_v2:
      return "RoCE v2";
    case GidType::infiniband_or_roce_v1:
      return "RoCE v1";
    case GidType::unknown:
      break;
  }
  return "unknown type";
}

std::string entry_text(const GidEntry& entry) {
  std::string text = port_text(entry) + " GID " + std::to_string(entry.index) + " " + gid_text(entry.gid);
  text.append(" (").append(type_text(entry.type));
  if (!entry.netdev.empty()) text.append(" on ").append(entry.netdev);
  return text + ")";
}

bool is_zero(const Gid& gid) noexcept {
  return std::all_of(gid.begin(), gid.end(), [](std::uint8_t byte) { return byte == 0; });
}

bool is_link_local(const Gid& gid) noexcept { return gid[0] == 0xFE && (gid[1] & 0xC0) == 0x80; }

// Why an entry with the right GID cannot be used, or empty.
std::string objection(const GidEntry& entry, std::string_view netdev) {
  if (entry.link_layer != "Ethernet")
    return port_text(entry) + " has link layer " + entry.link_layer + ", and this library speaks RoCE only";
  if (entry.index > kIndexMax) return entry_text(entry) + " stands beyond index 255, which verbs cannot name";
  if (entry.type == GidType::unknown) return entry_text(entry) + " is of no type that this library speaks";
  // A link-local address means something on its own interface only; any other could be on two as well.
  if (entry.netdev.empty() && is_link_local(entry.gid))
    return entry_text(entry) + " is link-local and the kernel does not say of which interface";
  if (!entry.netdev.empty() && entry.netdev != netdev)
    return entry_text(entry) + " has this GID, but the address belongs to " + std::string(netdev);
  if (entry.state != "ACTIVE") return port_text(entry) + " is " + entry.state + ", not ACTIVE";
  return {};
}

// What the host has instead.
std::string seen_text(std::span<const GidEntry> entries) {
  std::string seen;
  std::string foreign;
  std::size_t listed = 0;
  for (const GidEntry& entry : entries) {
    if (is_zero(entry.gid)) continue;
    if (entry.link_layer != "Ethernet") {
      foreign = "; " + port_text(entry) + " has link layer " + entry.link_layer + ", and this library speaks RoCE only";
      continue;
    }
    if (++listed > kNamedMax) continue;
    seen.append(seen.empty() ? "; there are " : ", ").append(entry_text(entry));
  }
  if (listed > kNamedMax) seen.append(" and ").append(std::to_string(listed - kNamedMax)).append(" more");
  return seen + foreign;
}

// True if `one` is to be preferred.
bool better(const GidEntry& one, const GidEntry& other) noexcept {
  if (one.type != other.type) return one.type == GidType::roce_v2;
  if (one.netdev.empty() != other.netdev.empty()) return !one.netdev.empty();
  return false;  // the order of the table: names, ports, indices
}

}  // namespace

Gid gid_of(const Address& address) noexcept {
  Gid gid{};
  if (address.family() == AF_INET) {
    const in_addr& four = reinterpret_cast<const sockaddr_in*>(&address.storage)->sin_addr;
    gid[10] = gid[11] = 0xFF;
    std::memcpy(gid.data() + 12, &four, sizeof four);
  } else if (address.family() == AF_INET6) {
    std::memcpy(gid.data(), &reinterpret_cast<const sockaddr_in6*>(&address.storage)->sin6_addr, gid.size());
  }
  return gid;
}

std::string gid_text(const Gid& gid) {
  in6_addr six{};
  std::memcpy(&six, gid.data(), gid.size());
  char text[INET6_ADDRSTRLEN] = "?";
  if (IN6_IS_ADDR_V4MAPPED(&six) != 0) {
    ::inet_ntop(AF_INET, gid.data() + 12, text, sizeof text);
  } else {
    ::inet_ntop(AF_INET6, gid.data(), text, sizeof text);
  }
  return text;
}

bool none_is_better(const GidEntry& entry) noexcept { return entry.type == GidType::roce_v2 && !entry.netdev.empty(); }

Outcome choose_gid(std::span<const GidEntry> entries, const Gid& local, std::string_view netdev, GidChoice& choice) {
  if (is_zero(local)) return failure(OFL_INVALID, "no RDMA device can be chosen for a wildcard address");
  const GidEntry* chosen = nullptr;
  std::string objections;
  for (const GidEntry& entry : entries) {
    if (entry.gid != local) continue;
    const std::string reason = objection(entry, netdev);
    if (reason.empty()) {
      if (chosen == nullptr || better(entry, *chosen)) chosen = &entry;
    } else {
      objections.append("; ").append(reason);
    }
  }
  const std::string wanted = gid_text(local) + " (" + std::string(netdev) + ")";
  if (chosen != nullptr) {
    choice = {*chosen, entry_text(*chosen) + " is the GID of " + wanted};
    return {};
  }
  if (entries.empty())
    return failure(OFL_INVALID, "no RDMA device for " + wanted + ": this host has none with a GID");
  if (objections.empty()) objections = seen_text(entries);
  return failure(OFL_INVALID, "no RDMA device carries " + wanted + objections);
}

}  // namespace ofl
