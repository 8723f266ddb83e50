// The readers behind gid_choice.hpp: the kernel's GID tables and interface addresses.

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include <dirent.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <unistd.h>

#include <arpa/inet.h>

#include "gid_choice.hpp"

namespace ofl {

namespace {

// The first line of a small kernel file; empty if it cannot be read, which for an unused index is usual.
std::string line_of(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return {};
  char text[128];
  const ssize_t got = ::read(file.get(), text, sizeof text);
  const std::string_view all(text, got > 0 ? static_cast<std::size_t>(got) : 0);
  return std::string(all.substr(0, all.find('\n')));
}

struct CloseFolder {
  void operator()(DIR* folder) const noexcept { ::closedir(folder); }
};

std::vector<std::string> names_in(const std::string& path) {
  std::vector<std::string> names;
  const std::unique_ptr<DIR, CloseFolder> folder(::opendir(path.c_str()));
  while (folder) {
    const dirent* item = ::readdir(folder.get());
    if (item == nullptr) break;
    if (item->d_name[0] != '.') names.emplace_back(item->d_name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

// Folders whose names are numbers, in the order of the numbers.
std::vector<std::uint32_t> numbers_in(const std::string& path) {
  std::vector<std::uint32_t> numbers;
  for (const std::string& name : names_in(path)) {
    std::uint32_t number = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
    if (error == std::errc() && end == name.data() + name.size()) numbers.push_back(number);
  }
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

Gid parse_gid(const std::string& text) {
  Gid gid{};
  if (::inet_pton(AF_INET6, text.c_str(), gid.data()) != 1) gid = {};
  return gid;
}

GidType parse_type(const std::string& text) {
  if (text == "RoCE v2") return GidType::roce_v2;
  return text == "IB/RoCE v1" ? GidType::infiniband_or_roce_v1 : GidType::unknown;
}

// "4: ACTIVE" -> "ACTIVE"
std::string after_colon(const std::string& text) {
  const std::size_t colon = text.find(": ");
  return colon == std::string::npos ? text : text.substr(colon + 2);
}

std::string port_folder(const std::string& root, const std::string& device, std::uint32_t port) {
  return root + "/" + device + "/ports/" + std::to_string(port);
}

// False: the index is unused.
bool read_entry(const std::string& folder, std::uint32_t index, GidEntry& entry) {
  const std::string number = std::to_string(index);
  entry.index = index;
  entry.gid = parse_gid(line_of(folder + "/gids/" + number));
  if (entry.gid == Gid{}) return false;
  entry.type = parse_type(line_of(folder + "/gid_attrs/types/" + number));
  entry.netdev = line_of(folder + "/gid_attrs/ndevs/" + number);
  return true;
}

GidEntry read_port(const std::string& root, const std::string& device, std::uint32_t port) {
  const std::string folder = port_folder(root, device, port);
  GidEntry entry;
  entry.device = device;
  entry.port = static_cast<std::uint8_t>(port);
  entry.state = after_colon(line_of(folder + "/state"));
  // An RNIC has an Ethernet link too and speaks something else on it.
  const bool iwarp = after_colon(line_of(root + "/" + device + "/node_type")) == "RNIC";
  entry.link_layer = iwarp ? "iWARP" : line_of(folder + "/link_layer");
  return entry;
}

struct FreeAddresses {
  void operator()(ifaddrs* list) const noexcept { ::freeifaddrs(list); }
};

bool owns(const ifaddrs& item, const Gid& wanted, std::uint32_t scope) noexcept {
  if (item.ifa_addr == nullptr) return false;
  Address address;
  const int family = item.ifa_addr->sa_family;
  if (family == AF_INET) {
    *reinterpret_cast<sockaddr_in*>(&address.storage) = *reinterpret_cast<const sockaddr_in*>(item.ifa_addr);
  } else if (family == AF_INET6) {
    const auto* six = reinterpret_cast<const sockaddr_in6*>(item.ifa_addr);
    if (scope != 0 && six->sin6_scope_id != 0 && six->sin6_scope_id != scope) return false;
    *reinterpret_cast<sockaddr_in6*>(&address.storage) = *six;
  } else {
    return false;
  }
  return gid_of(address) == wanted;
}

}  // namespace

std::vector<GidEntry> read_gids(const std::string& root) {
  std::vector<GidEntry> entries;
  for (const std::string& device : names_in(root)) {
    for (const std::uint32_t port : numbers_in(root + "/" + device + "/ports")) {
      const std::string folder = port_folder(root, device, port);
      GidEntry entry = read_port(root, device, port);
      for (const std::uint32_t index : numbers_in(folder + "/gids"))
        if (read_entry(folder, index, entry)) entries.push_back(entry);
    }
  }
  return entries;
}

bool still_there(const GidEntry& entry, const std::string& root) {
  GidEntry now = read_port(root, entry.device, entry.port);
  if (!read_entry(port_folder(root, entry.device, entry.port), entry.index, now)) return false;
  return now.gid == entry.gid && now.type == entry.type && now.netdev == entry.netdev && now.state == entry.state &&
         now.link_layer == entry.link_layer;
}

Outcome owner_of(const Address& local, std::string& netdev) {
  ifaddrs* raw = nullptr;
  if (::getifaddrs(&raw) != 0) return failure(OFL_SYSTEM, "cannot list the interfaces: " + errno_text(errno));
  const std::unique_ptr<ifaddrs, FreeAddresses> list(raw);
  const Gid wanted = gid_of(local);
  const std::uint32_t scope =
      local.family() == AF_INET6 ? reinterpret_cast<const sockaddr_in6*>(&local.storage)->sin6_scope_id : 0;
  for (const ifaddrs* item = list.get(); item != nullptr; item = item->ifa_next) {
    if (!owns(*item, wanted, scope)) continue;
    netdev = item->ifa_name;
    return {};
  }
  return failure(OFL_INVALID, "no interface of this host has the address " + gid_text(wanted));
}

}  // namespace ofl
